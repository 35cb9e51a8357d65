//! A child that outlives its parent just long enough to remove what the parent left behind. It
//! waits for the end of a pipe that only the parent holds, so it notices every kind of death.

use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt as _;

/// Removes every namespace whose name begins with its first argument, once its standard input ends.
const SCRIPT: &str = r#"
cat >/dev/null
for path in /run/netns/"$1"-*; do
  [ -e "$path" ] || continue
  name="${path##*/}"
  ip netns pids "$name" | while read -r pid; do kill -9 "$pid"; done
  ip netns del "$name"
done
"#;

/// The janitor of one world.
#[derive(Debug)]
pub(crate) struct Janitor(Option<Child>);

impl Janitor {
    /// Begins to wait. Without a shell there is none; the next world then sweeps up.
    pub(crate) fn hire(prefix: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "janitor", prefix]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // What a terminal sends to the foreground is not meant for it.
        command.process_group(0);
        Self(command.spawn().ok())
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            drop(child.stdin.take());
            // It finds nothing left and ends.
            let _ = child.wait();
        }
    }
}
