//! Connections to upstreams.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, TcpStream};

/// How long an upstream may take to answer. Clients try their next address after that.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Why an upstream was not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// No answer in time.
    #[error("the upstream did not answer within {} seconds", CONNECT_DEADLINE.as_secs())]
    TimedOut,
    /// The system or the upstream refused.
    #[error("the upstream refused the connection")]
    Io(#[from] io::Error),
}

/// Connects to `address`. Over IPv6 the connection leaves from the sandbox's own address, which
/// is not one of this host, so that no two sandboxes share what upstreams count by address.
pub(crate) async fn dial(
    sandbox: Ipv6Addr,
    address: IpAddr,
    port: u16,
) -> Result<TcpStream, DialError> {
    let socket = match address {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => from_sandbox(sandbox)?,
    };
    let connect = socket.connect(SocketAddr::new(address, port));
    match tokio::time::timeout(CONNECT_DEADLINE, connect).await {
        Ok(Ok(stream)) => {
            set_options(&stream)?;
            Ok(stream)
        }
        Ok(Err(error)) => Err(DialError::Io(error)),
        Err(_elapsed) => Err(DialError::TimedOut),
    }
}

fn from_sandbox(sandbox: Ipv6Addr) -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_ip_transparent_v6(true)?;
    // The port is chosen at connect, so that each destination has all of them.
    setsockopt(&socket, IpBindAddressNoPort, &true)?;
    socket.bind(&SocketAddrV6::new(sandbox, 0, 0, 0).into())?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Sets what every connection has: no delay, and probes that find dead peers.
pub(crate) fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(2 * 60))
        .with_interval(Duration::from_secs(30))
        .with_retries(4);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

/// Makes the close of this connection a reset.
pub(crate) fn reset_on_close(stream: &TcpStream) {
    // A socket that cannot be told so closes in the ordinary way.
    let _ordinary = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
