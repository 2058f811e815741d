//! The sockets, bound before anything starts, or taken over from the process that had them.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::handover::Inherited;
use crate::config::{Address, EDGE, Listener, Settings};
use crate::error::{Code, Failure};

pub const ADMIN: &str = "admin";
pub const UPGRADE: &str = "upgrade";

const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(15))
    .with_retries(4);
const BACKLOG: i32 = 4096;

pub enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Acceptor::Tcp(listener) => listener.as_fd(),
            Acceptor::Unix(listener) => listener.as_fd(),
        }
    }
}

pub struct Edge {
    pub settings: Listener,
    pub acceptor: Acceptor,
}

pub struct Listeners {
    /// In the order of the settings.
    pub edges: Vec<Edge>,
    pub admin: Option<TcpListener>,
}

/// Where the server listens, ports chosen by the system included.
#[derive(Debug, Clone)]
pub struct Addresses {
    pub edge: SocketAddr,
    pub admin: Option<SocketAddr>,
    /// Further listeners: name and address.
    pub others: Vec<(String, String)>,
}

impl Listeners {
    pub fn open(settings: &Settings, inherited: &mut Inherited) -> Result<Self, Failure> {
        let edges = settings.listeners.iter().map(|listener| {
            let acceptor = match &listener.address {
                Address::Tcp(address) => Acceptor::Tcp(tcp(&listener.name, *address, inherited)?),
                Address::Unix { path, mode } => {
                    let address = listener.address.to_string();
                    match inherited.take(&listener.name, &address) {
                        Some(socket) => {
                            // The settings may have changed since it was made.
                            let allowed = std::fs::Permissions::from_mode(*mode);
                            if let Err(e) = std::fs::set_permissions(path, allowed) {
                                tracing::warn!("the mode of {address} can't be set: {e}");
                            }
                            Acceptor::Unix(socket.into())
                        }
                        None => Acceptor::Unix(bind_unix(path, *mode)?),
                    }
                }
            };
            Ok(Edge {
                settings: listener.clone(),
                acceptor,
            })
        });
        Ok(Listeners {
            edges: edges.collect::<Result<_, Failure>>()?,
            admin: settings
                .admin
                .map(|address| tcp(ADMIN, address, inherited))
                .transpose()?,
        })
    }

    pub fn addresses(&self) -> Result<Addresses, Failure> {
        let of = |listener: &TcpListener| {
            listener
                .local_addr()
                .map_err(|e| Failure::new(Code::ExecutionFailed, format!("no local address: {e}")))
        };
        let mut edge = None;
        let mut others = Vec::new();
        for Edge { settings, acceptor } in &self.edges {
            match acceptor {
                Acceptor::Tcp(listener) if settings.name == EDGE => edge = Some(of(listener)?),
                Acceptor::Tcp(listener) => {
                    others.push((settings.name.clone(), of(listener)?.to_string()));
                }
                Acceptor::Unix(_) => {
                    others.push((settings.name.clone(), settings.address.to_string()));
                }
            }
        }
        Ok(Addresses {
            edge: edge.ok_or_else(|| Failure::new(Code::ExecutionFailed, "there is no edge"))?,
            admin: self.admin.as_ref().map(of).transpose()?,
            others,
        })
    }

    /// Each with the name and the address that a successor knows it by.
    pub fn shares(&self, settings: &Settings) -> std::io::Result<Vec<(String, String, OwnedFd)>> {
        let mut shares = Vec::new();
        for Edge { settings, acceptor } in &self.edges {
            let socket = acceptor.as_fd().try_clone_to_owned()?;
            shares.push((settings.name.clone(), settings.address.to_string(), socket));
        }
        if let (Some(listener), Some(address)) = (&self.admin, settings.admin) {
            let socket = listener.as_fd().try_clone_to_owned()?;
            shares.push((ADMIN.to_owned(), address.to_string(), socket));
        }
        Ok(shares)
    }
}

fn tcp(name: &str, address: SocketAddr, inherited: &mut Inherited) -> Result<TcpListener, Failure> {
    match inherited.take(name, &address.to_string()) {
        Some(socket) => Ok(socket.into()),
        None => bind(address),
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

/// A Unix socket under its own name. What an ended process left there is replaced; what lives there, or isn't a socket, stays.
pub fn bind_unix(path: &Path, mode: u32) -> Result<UnixListener, Failure> {
    let attempt = || -> std::io::Result<UnixListener> {
        let is_socket = |path| std::fs::symlink_metadata(path).map(|at| at.file_type().is_socket());
        if is_socket(path).unwrap_or(false) {
            match UnixStream::connect(path) {
                Ok(_) => return Err(std::io::ErrorKind::AddrInUse.into()),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                }
                Err(e) => return Err(e),
            }
        }
        // Bound where nobody looks, so that nobody finds it before its mode is right.
        let hidden = path.with_extension(format!("{}.new", std::process::id()));
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let _ = std::fs::remove_file(&hidden);
        socket.bind(&socket2::SockAddr::unix(&hidden)?)?;
        let finish = || -> std::io::Result<()> {
            std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(mode))?;
            socket.listen(BACKLOG)?;
            // Unlike rename, this replaces nothing.
            std::fs::hard_link(&hidden, path)
        };
        let finished = finish();
        let _ = std::fs::remove_file(&hidden);
        finished.map(|()| socket.into())
    };
    attempt().map_err(|e| {
        let failure = Failure::new(
            Code::InvalidValue,
            format!("can't listen on unix:{}: {e}", path.display()),
        );
        match e.kind() {
            std::io::ErrorKind::AddrInUse => failure.hint("another process listens there"),
            std::io::ErrorKind::AlreadyExists => failure.hint("something else is there"),
            _ => failure,
        }
    })
}
