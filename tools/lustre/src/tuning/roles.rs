//! `ulnet tuning roles`: what routers need, given how servers and clients ping them (PA-140), and what
//! follows from the values.

use clap::Args;
use lustre_tuning::Checks;
use serde_json::json;

use super::{print, print_json, seconds};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Interval to a live and a dead router, and wait for an answer, of servers
    #[arg(long, value_name = "LIVE/DEAD/TIMEOUT")]
    server: Checks,
    /// The same of clients
    #[arg(long, value_name = "LIVE/DEAD/TIMEOUT")]
    client: Checks,
    /// The same of routers, to be checked
    #[arg(long, value_name = "LIVE/DEAD/TIMEOUT")]
    router: Option<Checks>,
    /// LND timeout of servers and clients, to be checked
    #[arg(long, value_name = "SPAN", value_parser = seconds)]
    lnd_timeout: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let Options { server, client, router, lnd_timeout, json } = options;
    let all = [("server", *server), ("client", *client)];
    let router = router.unwrap_or_else(|| server.of_router(*client));
    for (role, checks) in all {
        router.waits_for(role, checks)?;
        lnd_timeout.map_or(Ok(()), |limit| checks.covers(role, limit))?;
    }
    if *json {
        let of = |checks: Checks| {
            let (prompt, slow) = checks.learns_within(router);
            json!({
                "finds_dead_router_within": checks.found_within(),
                "learns_of_far_side_within": prompt,
                "learns_with_slow_answers_within": slow,
            })
        };
        let document = json!({
            "router": router,
            "router_marks_interface_down_after": router.down_after(),
            "server": of(*server),
            "client": of(*client),
        });
        return print_json(&document);
    }
    let mut text = format!("router {router}\n\n");
    text += &format!("a router marks an interface down after {} s\n", router.down_after());
    for (role, checks) in all {
        let found = checks.found_within();
        let (prompt, slow) = checks.learns_within(router);
        text += &format!(
            "a {role} finds a dead router within {found} s, a dead far side within {prompt} s, \
             {slow} s if answers are slow\n"
        );
    }
    print(&text);
    Ok(())
}
