//! The listening sockets: bound before anything starts, or inherited from the process that had
//! them before.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::config::{Address, EDGE, Listener, Settings};
use crate::error::{Code, Failure};
use crate::server::lifecycle::handover::{InheritedListeners, NamedSocket};

pub const ADMIN: &str = "admin";

const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(15))
    .with_retries(4);
const BACKLOG: i32 = 4096;

pub enum BoundSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            BoundSocket::Tcp(listener) => listener.as_fd(),
            BoundSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A listener for callers, with its socket.
pub struct BoundListener {
    pub settings: Listener,
    pub socket: BoundSocket,
}

pub struct Listeners {
    /// In the order of the settings.
    pub for_callers: Vec<BoundListener>,
    pub admin: Option<TcpListener>,
}

/// Where the server listens, with the ports that the system chose.
#[derive(Debug, Clone)]
pub struct Addresses {
    pub edge: SocketAddr,
    pub admin: Option<SocketAddr>,
    /// Further listeners for callers.
    pub others: Vec<ListenerAddress>,
}

#[derive(Debug, Clone)]
pub struct ListenerAddress {
    pub name: String,
    pub address: String,
}

impl Listeners {
    pub fn open(settings: &Settings, inherited: &mut InheritedListeners) -> Result<Self, Failure> {
        let for_callers = settings.listeners.iter().map(|listener| {
            Ok(BoundListener {
                settings: listener.clone(),
                socket: open(listener, inherited)?,
            })
        });
        Ok(Listeners {
            for_callers: for_callers.collect::<Result<_, Failure>>()?,
            admin: settings
                .admin
                .map(|address| open_tcp(ADMIN, address, inherited))
                .transpose()?,
        })
    }

    pub fn addresses(&self) -> Result<Addresses, Failure> {
        let of = |listener: &TcpListener| {
            listener
                .local_addr()
                .map_err(|e| Failure::new(Code::ExecutionFailed, "no local address").because(e))
        };
        let mut edge = None;
        let mut others = Vec::new();
        for BoundListener { settings, socket } in &self.for_callers {
            let address = match socket {
                BoundSocket::Tcp(listener) if settings.name == EDGE => {
                    edge = Some(of(listener)?);
                    continue;
                }
                BoundSocket::Tcp(listener) => of(listener)?.to_string(),
                BoundSocket::Unix(_) => settings.address.to_string(),
            };
            others.push(ListenerAddress {
                name: settings.name.clone(),
                address,
            });
        }
        Ok(Addresses {
            edge: edge.ok_or_else(|| Failure::new(Code::ExecutionFailed, "there is no edge"))?,
            admin: self.admin.as_ref().map(of).transpose()?,
            others,
        })
    }

    /// Duplicates of the sockets, with the names and addresses that a successor finds them by.
    pub fn named_sockets(&self, settings: &Settings) -> std::io::Result<Vec<NamedSocket>> {
        let mut sockets = Vec::new();
        for BoundListener { settings, socket } in &self.for_callers {
            sockets.push(NamedSocket {
                name: settings.name.clone(),
                address: settings.address.to_string(),
                socket: socket.as_fd().try_clone_to_owned()?,
            });
        }
        if let (Some(listener), Some(address)) = (&self.admin, settings.admin) {
            sockets.push(NamedSocket {
                name: ADMIN.to_owned(),
                address: address.to_string(),
                socket: listener.as_fd().try_clone_to_owned()?,
            });
        }
        Ok(sockets)
    }
}

fn open(listener: &Listener, inherited: &mut InheritedListeners) -> Result<BoundSocket, Failure> {
    let (path, mode) = match &listener.address {
        Address::Tcp(address) => {
            return open_tcp(&listener.name, *address, inherited).map(BoundSocket::Tcp);
        }
        Address::Unix { path, mode } => (path, *mode),
    };
    let address = listener.address.to_string();
    let Some(socket) = inherited.take(&listener.name, &address) else {
        return bind_unix(path, mode).map(BoundSocket::Unix);
    };
    // The configured mode may have changed since the socket was made.
    let allowed = std::fs::Permissions::from_mode(mode);
    if let Err(e) = std::fs::set_permissions(path, allowed) {
        tracing::warn!(%address, error = %e, "the mode of a Unix socket can't be set");
    }
    Ok(BoundSocket::Unix(socket.into()))
}

fn open_tcp(
    name: &str,
    address: SocketAddr,
    inherited: &mut InheritedListeners,
) -> Result<TcpListener, Failure> {
    match inherited.take(name, &address.to_string()) {
        Some(socket) => Ok(socket.into()),
        None => bind_tcp(name, address),
    }
}

fn bind_tcp(name: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    let attempt = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        // A restart must not wait for TIME_WAIT of old connections. Two listeners stay impossible.
        socket.set_reuse_address(true)?;
        // Accepted connections inherit this: a peer that vanished without a FIN is detected.
        socket.set_tcp_keepalive(&KEEPALIVE)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    attempt().map_err(|e| {
        let kind = e.kind();
        let failure = cannot_listen(&address.to_string(), e);
        match kind {
            ErrorKind::AddrInUse => {
                let setting = match name {
                    EDGE => "--port".to_owned(),
                    ADMIN => "--admin, or listen of [admin] in the conf file".to_owned(),
                    name => format!("listen of the [[listener]] '{name}' in the conf file"),
                };
                failure.hint(format!(
                    "another process has this port; choose one with {setting}"
                ))
            }
            ErrorKind::PermissionDenied => {
                failure.hint("ports below 1024 need CAP_NET_BIND_SERVICE")
            }
            _ => failure,
        }
    })
}

/// Binds a Unix socket at `path`. A socket that an ended process left there is replaced. A socket
/// that accepts connections, or a file that is no socket, is left alone.
pub fn bind_unix(path: &Path, mode: u32) -> Result<UnixListener, Failure> {
    let attempt = || -> std::io::Result<UnixListener> {
        let is_socket = |path| std::fs::symlink_metadata(path).map(|at| at.file_type().is_socket());
        if is_socket(path).unwrap_or(false) {
            match UnixStream::connect(path) {
                Ok(_) => return Err(ErrorKind::AddrInUse.into()),
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
                Err(e) => return Err(e),
            }
        }
        // Bound under another name first, so that no client connects before the mode is set.
        let hidden = path.with_extension(format!("{}.new", std::process::id()));
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let _ = std::fs::remove_file(&hidden);
        socket.bind(&socket2::SockAddr::unix(&hidden)?)?;
        let publish = || -> std::io::Result<()> {
            std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(mode))?;
            socket.listen(BACKLOG)?;
            // Unlike rename, this replaces nothing.
            std::fs::hard_link(&hidden, path)
        };
        let published = publish();
        let _ = std::fs::remove_file(&hidden);
        published.map(|()| socket.into())
    };
    attempt().map_err(|e| {
        let kind = e.kind();
        let failure = cannot_listen(&format!("unix:{}", path.display()), e);
        match kind {
            ErrorKind::AddrInUse => failure.hint("another process listens there"),
            ErrorKind::AlreadyExists => failure.hint("something else is there"),
            _ => failure,
        }
    })
}

fn cannot_listen(address: &str, e: std::io::Error) -> Failure {
    Failure::new(Code::InvalidValue, format!("can't listen on {address}")).because(e)
}
