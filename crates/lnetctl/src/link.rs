//! The way to the daemon, taken when the first request needs it: commands that ask nothing (help,
//! mistakes) work without one.

use std::path::PathBuf;
use std::time::Duration;

use lnet_admin::{Ask, Client, ClientError, Reply, Request, default_socket};

/// A connection that is made when it is needed.
pub struct Link {
    socket: Option<PathBuf>,
    client: Option<Client>,
}

impl Link {
    /// To the daemon at `socket`, else at the usual place.
    pub const fn new(socket: Option<PathBuf>) -> Self {
        Self { socket, client: None }
    }
}

impl Ask for Link {
    fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Reply, ClientError> {
        let client = match &mut self.client {
            Some(client) => client,
            empty => {
                let path = self.socket.clone().unwrap_or_else(default_socket);
                empty.insert(Client::connect(path)?)
            }
        };
        let answer = client.ask_within(request, limit);
        if !matches!(answer, Ok(_) | Err(ClientError::Refused(_))) {
            self.client = None;
        }
        answer
    }
}
