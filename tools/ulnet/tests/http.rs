//! The status server of the daemon as its clients see it: numbers for Prometheus, the page in a
//! browser, and what it does with those that are up to no good.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod dashboards;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netns::{Host, Port, Process, World};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
/// How long what happens by itself may take before the test calls it missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon with its status server, killed when dropped.
struct Daemon {
    dir: PathBuf,
    child: Child,
    http: SocketAddr,
}

impl Daemon {
    fn start(name: &str) -> Self {
        let dir = fresh::path(&format!("http-{name}"));
        fs::create_dir_all(&dir).unwrap();
        let port = fresh::port();
        let mut child = Command::new(PROGRAM)
            .args(["daemon", "--http", "0", "--port", &port.to_string(), "--socket"])
            .arg(dir.join("s"))
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut http) = (String::new(), None);
        while !line.contains("ready") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
            assert!(!line.contains('\x1b'), "a log that is no terminal has no colours: {line:?}");
            if let Some((_, rest)) = line.split_once("status page on http://") {
                http = rest.split_once('/').map(|(address, _)| address.parse().unwrap());
            }
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { dir, child, http: http.expect("it says where the page is") }
    }

    fn ctl(&self, words: &str) -> String {
        ctl(Command::new(PROGRAM), &self.dir.join("s"), words)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn ctl(mut program: Command, socket: &Path, words: &str) -> String {
    let o = program
        .arg("ctl")
        .args(words.split_whitespace())
        .env("ULNET_SOCKET", socket)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(o.status.success(), "{words}: {o:?}");
    String::from_utf8(o.stdout).unwrap()
}

/// Sends a head and reads all that comes.
fn talk(at: SocketAddr, head: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn asked(at: SocketAddr, path: &str) -> std::io::Result<String> {
    talk(at, &format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n"))
}

fn get(at: SocketAddr, path: &str) -> (String, String) {
    let answer = asked(at, path).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Value of the first sample of `name` whose labels hold `label`.
fn sample(metrics: &str, name: &str, label: &str) -> f64 {
    let line = metrics.lines().find(|line| {
        let series = line.strip_prefix(name);
        series.is_some_and(|rest| rest.starts_with([' ', '{']) && rest.contains(label))
    });
    let line = line.unwrap_or_else(|| panic!("no sample of {name} with {label} in:\n{metrics}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn numbers_agree_with_what_the_tool_shows() {
    let d = Daemon::start("numbers");
    let (head, metrics) = get(d.http, "/metrics");
    let classic = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains(classic), "{head}");
    assert_eq!(sample(&metrics, "lnet_configured", ""), 0.0);
    d.ctl("lnet configure");
    d.ctl("net add --net tcp --if lo");
    d.ctl("set transaction_timeout 17");
    for _ in 0..3 {
        d.ctl("ping 127.0.0.1@tcp");
    }
    std::thread::sleep(Duration::from_millis(300));
    let (_, metrics) = get(d.http, "/metrics");
    assert_eq!(sample(&metrics, "lnet_configured", ""), 1.0);
    assert_eq!(sample(&metrics, "lnet_tunable_transaction_timeout_seconds", ""), 17.0);
    assert_eq!(sample(&metrics, "lnet_ni_health", "127.0.0.1@tcp"), 1000.0);
    for line in d.ctl("stats show").lines().skip(1) {
        let (name, value) = line.trim().split_once(": ").unwrap();
        if let Some(stem) = name.strip_suffix("_count") {
            let ours = sample(&metrics, &format!("lnet_{stem}_total"), "");
            assert_eq!(ours, value.parse::<f64>().unwrap(), "{name}");
        }
    }
    assert!(sample(&metrics, "lnet_send_total", "") >= 3.0);
}

#[test]
fn the_accept_header_chooses_between_the_classic_text_and_openmetrics() {
    let d = Daemon::start("accept");
    d.ctl("lnet configure");
    let accepting = |accept: &str| {
        let answer = talk(d.http, &format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n"));
        let answer = answer.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    // As Prometheus asks.
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*";
    let (head, open) = accepting(prometheus);
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(head.contains(kind), "{head}");
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    assert!(open.contains("\n# TYPE lnet_send counter\n") && open.contains("\nlnet_send_total "));
    assert!(open.contains("\n# UNIT process_cpu_seconds seconds\nprocess_cpu_seconds_total "));
    // As a browser or curl does.
    let (head, classic) = accepting("*/*");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(!classic.contains("# EOF") && !classic.contains("# UNIT"), "{classic}");
    assert!(classic.contains("\n# TYPE lnet_send_total counter\nlnet_send_total "));
    for (name, least) in [
        ("process_cpu_seconds_total", 0.0),
        ("process_open_fds", 4.0),
        ("process_max_fds", 5.0),
        ("process_resident_memory_bytes", 1e6),
        ("process_virtual_memory_bytes", 1e6),
        ("process_start_time_seconds", 1e9),
        ("process_threads", 2.0),
    ] {
        assert!(sample(&classic, name, "") >= least, "{name}");
    }
}

#[test]
fn nothing_can_be_changed_and_nothing_else_is_served() {
    let d = Daemon::start("readonly");
    let (head, page) = get(d.http, "/");
    assert!(head.contains("text/html") && head.contains("default-src 'none'"), "{head}");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let title = format!("<title>{}: lnetd</title>", host.trim());
    assert!(page.contains(&title) && !page.contains("@HOST@"), "{title}");
    for outside in ["http://", "https://", "src=", "@import"] {
        assert!(!page.contains(outside), "the page needs something from outside: {outside}");
    }
    let status = |head: &str| talk(d.http, head).unwrap().split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status("POST / HTTP/1.1\r\n\r\n"), "405");
    assert_eq!(status("DELETE /metrics HTTP/1.1\r\n\r\n"), "405");
    assert_eq!(status("GET /../../etc/passwd HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n"), "421");
    assert_eq!(status("\u{1}\u{2}garbage\r\n\r\n"), "400");
    let head = talk(d.http, "HEAD / HTTP/1.1\r\n\r\n").unwrap();
    assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: "), "{head}");
    let (_, status) = get(d.http, "/status.json");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["configured"], &status["refused"]), (&false.into(), &5.into()));
    assert_eq!(status["host"], host.trim());
}

#[test]
fn each_state_has_the_word_that_top_has() {
    let d = Daemon::start("words");
    d.ctl("lnet configure");
    d.ctl("net add --net tcp --if lo");
    d.ctl("peer add --prim_nid 10.9.8.7@tcp");
    let states = |d: &Daemon| {
        // Longer than a picture is fresh.
        std::thread::sleep(Duration::from_millis(300));
        let status: serde_json::Value =
            serde_json::from_str(&get(d.http, "/status.json").1).unwrap();
        let nets = status["node"]["nets"].as_array().unwrap().clone();
        let tcp = nets.iter().find(|net| net["net"] == "tcp").unwrap();
        let peer = &status["node"]["peers"][0]["nis"][0]["state"];
        (tcp["nis"][0]["state"].clone(), peer.clone())
    };
    assert_eq!(states(&d), ("up".into(), "unknown".into()));
    d.ctl("net set --nid 127.0.0.1@tcp --health 500");
    assert_eq!(states(&d).0, "degraded");
}

#[test]
fn held_http_connections_are_bounded_and_do_not_affect_the_node() {
    let d = Daemon::start("bounded");
    d.ctl("lnet configure");
    let mut held: Vec<_> = (0..40).map(|_| TcpStream::connect(d.http).unwrap()).collect();
    // The last ones are above the limit and get the answer at once.
    let mut answer = String::new();
    let last = held.last_mut().unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    d.ctl("net show");
    drop(held);
    let until = Instant::now() + PATIENCE;
    // A request that is on its way when its connection is refused may see a reset instead of the answer.
    while !asked(d.http, "/metrics").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        assert!(Instant::now() < until, "places do not come free");
    }
}

#[test]
fn a_wrong_http_address_is_refused_by_name() {
    for bad in ["nonsense", "10.0.0.1", "127.0.0.1:99999", "localhost:80"] {
        let o = Command::new(PROGRAM).args(["daemon", "--http", bad]).output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(
            !o.status.success() && said.contains(bad) && said.contains("0.0.0.0:9110"),
            "{said}"
        );
    }
}

/// Two nodes with two rails in namespaces: one of them has a status page, and its messages fail.
struct Site {
    a: Host,
    dir: PathBuf,
    _daemons: [Process; 2],
    _world: World,
}

const CONFIG: &str =
    "net:\n- net type: tcp\n  local NI(s):\n  - interfaces:\n      0: eth0\n      1: eth1\n";

impl Site {
    fn new(tag: &str) -> Option<Self> {
        let world = match World::new(tag) {
            Ok(world) => world,
            Err(why) => {
                netns::skipped("two nodes and a status page", why);
                return None;
            }
        };
        let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
        for (i, device) in ["eth0", "eth1"].into_iter().enumerate() {
            let (x, y) = (format!("10.77.{i}.2/24"), format!("10.77.{i}.3/24"));
            let (x, y) = ([x.as_str()], [y.as_str()]);
            world.segment(&[Port::new(&a, device, &x), Port::new(&b, device, &y)]).unwrap();
        }
        let dir = fresh::path(tag);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("node.yaml"), CONFIG).unwrap();
        let start = |host: &Host, name: &str| {
            let mut daemon = host.command(PROGRAM);
            daemon.args(["daemon", "-q", "--http", "9110", "--config"]).arg(dir.join("node.yaml"));
            let daemon = host.spawn({
                daemon.arg("--socket").arg(dir.join(name));
                daemon
            });
            let until = Instant::now() + PATIENCE;
            while std::os::unix::net::UnixStream::connect(dir.join(name)).is_err() {
                assert!(Instant::now() < until, "no daemon");
                std::thread::sleep(Duration::from_millis(20));
            }
            daemon.unwrap()
        };
        let daemons = [start(&a, "a"), start(&b, "b")];
        Some(Self { a, dir, _daemons: daemons, _world: world })
    }

    fn ctl(&self, words: &str) -> String {
        ctl(self.a.command(PROGRAM), &self.dir.join("a"), words)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn the_page_shows_nets_peers_health_resends_and_faults_in_a_browser() {
    let Some(browser) = crate::browser::program() else {
        return netns::skipped("the status page in a browser", "there is no chromium");
    };
    let Some(site) = Site::new("page") else { return };
    site.ctl("discover 10.77.0.3@tcp");
    site.ctl("fault drop add --source *@tcp --dest *@tcp --rate 2 --times 2 -e local_timeout");
    site.ctl("ping 10.77.0.3@tcp");
    site.ctl("ping 10.77.0.3@tcp");
    let mut page = site.a.command(browser);
    page.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    page.arg(format!("--user-data-dir={}", site.dir.join("browser").display()));
    page.args(["--window-size=1220,1290", "--virtual-time-budget=4000"]);
    // A picture for people, where they ask for one.
    if let Some(picture) = std::env::var_os("ULNET_PICTURE") {
        if std::env::var_os("ULNET_DARK").is_some() {
            page.arg("--blink-settings=preferredColorScheme=0");
        }
        std::thread::sleep(Duration::from_secs(70));
        page.arg(format!("--screenshot={}", Path::new(&picture).display()));
        assert!(page.arg("http://127.0.0.1:9110/").output().unwrap().status.success());
        return;
    }
    let o = page.args(["--dump-dom", "http://127.0.0.1:9110/"]).output().unwrap();
    let dom = String::from_utf8_lossy(&o.stdout);
    for shown in [
        ">live<",
        ">10.77.0.2@tcp<",
        ">10.77.1.2@tcp<",
        ">10.77.0.3@tcp<",
        ">eth1<",
        " interfaces<",
        "health over the last hour: now",
        ", attempt 2 after local_timeout: ",
        "drop: *@tcp to *@tcp",
        ">sent again<",
    ] {
        assert!(dom.contains(shown), "{shown} is not in the page:\n{dom}\n{o:?}");
    }
}
