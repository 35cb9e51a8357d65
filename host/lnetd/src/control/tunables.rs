//! `global` and `set`: the tunables of the node.

use lnet::Tunables;
use lnet_admin::{AdminError, GlobalSnapshot, Reply};
use lnet_config::Setting;
use lnet_types::Errno;

use super::routing;
use super::{Control, off, stopped};

impl Control {
    pub(super) fn global_show(&self) -> Reply {
        Reply::Global(self.global())
    }

    /// All tunables, and what follows from them.
    pub(crate) fn global(&self) -> GlobalSnapshot {
        let state = self.state();
        let t = &state.tunables;
        let defaults = Tunables::new(t.profile);
        let tunables = Tunables::TABLE
            .iter()
            .filter_map(|row| Some(Setting::new(row.name, t.value(row.name)?)))
            .collect();
        GlobalSnapshot {
            configured: state.node.is_some(),
            tunables,
            changed: Tunables::TABLE
                .iter()
                .filter(|row| t.value(row.name) != defaults.value(row.name))
                .map(|row| row.name.to_owned())
                .collect(),
            lnd_timeout_ms: t.lnd_timeout().as_millis() as u64,
            profile: t.profile.name().to_owned(),
        }
    }

    /// C-set-1. The node's copy follows; both take all of it or nothing.
    pub(super) fn set(&self, settings: &[Setting]) -> Result<Reply, AdminError> {
        let mut state = self.state();
        if state.node.is_none() && settings.iter().any(|s| s.name == "numa_range") {
            return Err(off(Errno::ENETDOWN));
        }
        let changes: Vec<(String, i64)> =
            settings.iter().map(|s| (s.name.clone(), s.value)).collect();
        let next = changed(&state.tunables, settings)?;
        if let Some(node) = &state.node {
            let buffers = routing::are_buffers(settings);
            node.handle
                .call(move |stack, _| {
                    let changes: Vec<(&str, i64)> =
                        changes.iter().map(|(n, v)| (n.as_str(), *v)).collect();
                    let before = buffers.then(|| stack.node().tunables().clone());
                    stack
                        .set_tunables(&changes)
                        .map_err(|e| AdminError::errno(e.errno()).because(e))?;
                    let fit = if buffers { stack.fit_router_buffers() } else { Ok(()) };
                    let Err(errno) = fit else { return Ok(()) };
                    // All of it or nothing.
                    if let Some(before) = before {
                        let names = changes.iter().map(|(name, _)| *name);
                        let back: Vec<_> =
                            names.filter_map(|n| Some((n, before.value(n)?))).collect();
                        // What was in force a moment ago is not refused.
                        let _ = stack.set_tunables(&back);
                        let _ = stack.fit_router_buffers();
                    }
                    Err(AdminError::errno(errno).because("no memory for router buffers"))
                })
                .blocking()
                .map_err(|e| stopped(&e))??;
        }
        state.tunables = next;
        Ok(Reply::Done)
    }
}

/// The tunables after a change, all of it or none.
pub(super) fn changed(before: &Tunables, settings: &[Setting]) -> Result<Tunables, AdminError> {
    let mut next = before.clone();
    let changes: Vec<(&str, i64)> = settings.iter().map(|s| (s.name.as_str(), s.value)).collect();
    next.set_all(&changes).map_err(|e| AdminError::errno(e.errno()).because(e))?;
    Ok(next)
}
