//! The sockets, bound before anything starts.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::config::Settings;
use crate::error::{Code, Failure};

const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(15))
    .with_retries(4);
const BACKLOG: i32 = 4096;

pub struct Listeners {
    pub edge: TcpListener,
    pub admin: Option<TcpListener>,
}

/// Where the server listens, ports chosen by the system included.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub edge: SocketAddr,
    pub admin: Option<SocketAddr>,
}

impl Listeners {
    pub fn bind(settings: &Settings) -> Result<Self, Failure> {
        Ok(Listeners {
            edge: bind(settings.edge)?,
            admin: settings.admin.map(bind).transpose()?,
        })
    }

    pub fn addresses(&self) -> Result<Addresses, Failure> {
        let of = |listener: &TcpListener| {
            listener
                .local_addr()
                .map_err(|e| Failure::new(Code::ExecutionFailed, format!("no local address: {e}")))
        };
        Ok(Addresses {
            edge: of(&self.edge)?,
            admin: self.admin.as_ref().map(of).transpose()?,
        })
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let attempt = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        // A restart must not wait for the old connections' TIME_WAIT. It doesn't allow two listeners.
        socket.set_reuse_address(true)?;
        // Accepted connections inherit these: a peer that is gone without a word is found out.
        socket.set_tcp_keepalive(&KEEPALIVE)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    attempt().map_err(|e| {
        let failure = Failure::new(
            Code::InvalidValue,
            format!("can't listen on {address}: {e}"),
        );
        match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                failure.hint("another process has this port; choose one with --port")
            }
            std::io::ErrorKind::PermissionDenied => {
                failure.hint("ports below 1024 need CAP_NET_BIND_SERVICE")
            }
            _ => failure,
        }
    })
}
