//! The way to the daemon, taken when the first request needs it: commands that ask nothing (help,
//! mistakes) work without one.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::waiting::Waiting;
use lnet_admin::{
    Access, AdminError, Ask, Client, ClientError, Reply, Request, SOCKET_ENV, default_socket,
};

/// How long the socket of a daemon that is starting may take to appear.
const APPEARS_WITHIN: Duration = Duration::from_secs(2);

/// A connection that is made when it is needed.
pub struct Link {
    socket: Option<PathBuf>,
    client: Option<Client>,
    /// What was said last about a right that is missing.
    printed: Option<String>,
}

impl Link {
    /// To the daemon at `socket`, else at the usual place.
    pub const fn new(socket: Option<PathBuf>) -> Self {
        Self { socket, client: None, printed: None }
    }
}

impl Link {
    /// Prints a missing right on standard error, for scripts and persons, whatever else the command
    /// makes of it: who asked, for what, and what it takes.
    fn report(&mut self, refusal: &AdminError) {
        if let (true, Some(why)) = (refusal.is_not_permitted(), &refusal.detail)
            && self.printed.as_ref() != Some(why)
        {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr().lock(), "{why}");
            self.printed = Some(why.clone());
        }
    }
}

impl Ask for Link {
    fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Reply, ClientError> {
        let client = match &mut self.client {
            Some(client) => client,
            empty => {
                let path = self.socket.clone().unwrap_or_else(default_socket);
                // A socket that has a name here belongs to a daemon that may be starting. The usual one
                // belongs to a service, which is there or is not.
                let named = self.socket.is_some() || std::env::var_os(SOCKET_ENV).is_some();
                empty.insert(match named {
                    true => Client::connect_within(path, APPEARS_WITHIN)?,
                    false => Client::connect(path)?,
                })
            }
        };
        // What only looks is quick, and may be asked from under a picture.
        let is_work = matches!(request.needs(), Access::Write);
        let waiting = is_work.then(|| Waiting::at_terminal(request.name(), limit)).flatten();
        let answer = client.ask_within(request, limit);
        drop(waiting);
        match &answer {
            Ok(_) => {}
            Err(ClientError::Refused(refusal)) => {
                self.report(refusal);
            }
            Err(_) => self.client = None,
        }
        answer
    }
}
