//! Speaks HTTP to the agent over its Unix socket.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::model::{ErrorBody, ErrorReply};

/// The longest reply that is taken, in bytes: ten thousand sandboxes fit several times.
const MAX_REPLY: usize = 64 * 1024 * 1024;
/// How long the agent may take for an answer. Repairing a full node takes seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The agent cannot be reached.
    #[error("no agent answers at {}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The agent does not answer, as when it is stopped or its disk hangs.
    #[error("the agent at {} has not answered in {} s", socket.display(), deadline.as_secs())]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// How long was waited.
        deadline: Duration,
    },
    /// The connection broke.
    #[error("the connection to the agent broke")]
    Broken(#[source] hyper::Error),
    /// The reply ended early, or was too long.
    #[error("the agent's reply could not be read")]
    Reply(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A request could not be put together.
    #[error("the request could not be put together")]
    Request(#[source] http::Error),
    /// A request could not be encoded.
    #[error("the request could not be encoded")]
    Encode(#[source] serde_json::Error),
    /// The reply is not what was expected.
    #[error("the agent's reply is not understood: is it of another version?")]
    Decode(#[source] serde_json::Error),
    /// The agent refused.
    #[error("{}", error.message)]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// What it said.
        error: Box<ErrorBody>,
    },
}

impl ClientError {
    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Connect { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Some("the socket is the operator's: run this as root".to_owned())
            }
            Self::Connect { .. } => {
                Some("start it with `causeway up`, or name its socket with `--socket`".to_owned())
            }
            Self::Silent { .. } => Some(
                "what was asked may still happen; see what the agent's process is doing".to_owned(),
            ),
            Self::Refused { error, .. } => error.help.clone(),
            _ => None,
        }
    }
}

/// A client of one agent. Each request has its own connection: the socket is local.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    deadline: Duration,
}

impl Client {
    /// A client of the agent that listens on `socket`.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            deadline: DEADLINE,
        }
    }

    /// Asks for something.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        decode(&self.send(Method::GET, path, None).await?)
    }

    /// Asks for text.
    pub async fn get_text(&self, path: &str) -> Result<String, ClientError> {
        let bytes = self.send(Method::GET, path, None).await?;
        String::from_utf8(bytes.to_vec()).map_err(|error| ClientError::Reply(Box::new(error)))
    }

    /// Sends a JSON body, and takes a JSON reply.
    pub async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(ClientError::Encode)?;
        let body = ("application/json", Bytes::from(body));
        decode(&self.send(Method::POST, path, Some(body)).await?)
    }

    /// Changes something that needs no body.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<T, ClientError> {
        decode(&self.send(method, path, None).await?)
    }

    /// Changes something, and expects no reply.
    pub async fn change(&self, method: Method, path: &str) -> Result<(), ClientError> {
        self.send(method, path, None).await?;
        Ok(())
    }

    /// Sends bytes of another kind, such as a policy file or a secret.
    pub async fn upload(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        self.send(method, path, Some((kind, body))).await
    }

    /// Follows a stream of lines, and calls `line` with each, until it ends.
    pub async fn follow(
        &self,
        path: &str,
        mut line: impl FnMut(&str) -> std::ops::ControlFlow<()>,
    ) -> Result<(), ClientError> {
        let mut body = self.open(Method::GET, path, None).await?;
        let mut rest = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(ClientError::Broken)?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            rest.extend_from_slice(&data);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let text: Vec<u8> = rest.drain(..=end).collect();
                let text = String::from_utf8_lossy(&text);
                if line(text.trim_end()).is_break() {
                    return Ok(());
                }
            }
            if rest.len() > MAX_REPLY {
                return Err(ClientError::Reply("a line without end".into()));
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Bytes, ClientError> {
        self.in_time(async { read(self.exchange(method, path, body).await?).await })
            .await
    }

    /// Sends a request and returns the body of a good reply, which may go on for long.
    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Incoming, ClientError> {
        self.in_time(self.exchange(method, path, body)).await
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match tokio::time::timeout(self.deadline, work).await {
            Ok(done) => done,
            Err(_late) => Err(ClientError::Silent {
                socket: self.socket.clone(),
                deadline: self.deadline,
            }),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Incoming, ClientError> {
        let stream =
            UnixStream::connect(&self.socket)
                .await
                .map_err(|source| ClientError::Connect {
                    socket: self.socket.clone(),
                    source,
                })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(ClientError::Broken)?;
        // It ends with the request; what goes wrong in it shows in the reply.
        drop(tokio::spawn(connection));
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "causeway");
        if let Some((kind, _)) = &body {
            request = request.header(CONTENT_TYPE, *kind);
        }
        let body = body.map_or_else(Bytes::new, |(_, bytes)| bytes);
        let request = request
            .body(Full::new(body))
            .map_err(ClientError::Request)?;
        let reply = sender
            .send_request(request)
            .await
            .map_err(ClientError::Broken)?;
        let status = reply.status();
        if status.is_success() {
            return Ok(reply.into_body());
        }
        Err(refused(status, &read(reply.into_body()).await?))
    }
}

async fn read(body: Incoming) -> Result<Bytes, ClientError> {
    Ok(Limited::new(body, MAX_REPLY)
        .collect()
        .await
        .map_err(ClientError::Reply)?
        .to_bytes())
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    let error = match serde_json::from_slice::<ErrorReply>(body) {
        Ok(reply) => reply.error,
        Err(_other) => ErrorBody {
            code: "unknown".to_owned(),
            message: format!("the agent answered {status}"),
            help: None,
            details: None,
        },
    };
    ClientError::Refused {
        status,
        error: Box::new(error),
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ClientError> {
    // Nothing at all is JSON's null, so that `()` can be asked for.
    let bytes = if bytes.is_empty() { b"null" } else { bytes };
    serde_json::from_slice(bytes).map_err(ClientError::Decode)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn an_agent_that_does_not_answer_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let client = Client {
            deadline: Duration::from_millis(300),
            ..Client::new(&socket)
        };
        // Nobody accepts: the kernel still lets the client connect.
        let error = client.get::<u8>("/v1/status").await.unwrap_err();
        assert!(matches!(error, ClientError::Silent { .. }), "{error}");
        // The control: one that answers.
        let answers = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                // The one from above is still in the queue, and gone.
                if stream.read(&mut [0; 1024]).await.unwrap_or(0) > 0 {
                    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7";
                    let _gone = stream.write_all(reply).await;
                }
            }
        });
        assert_eq!(client.get::<u8>("/v1/status").await.unwrap(), 7);
        answers.abort();
    }
}
