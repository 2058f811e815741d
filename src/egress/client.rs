//! HTTP for tools: pooled clients that resolve names through us, so that the address that was checked is the one that is dialled.

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;
use rustls::ClientConfig;

use super::address::is_public;
use super::guard::{Blocked, Guard};
use super::resolve::Resolver;
use super::{Settings, Unresolved, roots};
use crate::error::{Problem, UpstreamFault};

const CONNECT: Duration = Duration::from_secs(10);
/// Shorter than servers keep theirs, of which Node's and Python's have five seconds: a request on a connection that is just being closed is lost, and may not be
/// sent again.
const IDLE: Duration = Duration::from_secs(4);

/// One client for each thread and source address: whoever opens a connection drives it, and a thread that is busy must not hold up the others.
/// They are made when they are first used: a command that calls nothing pays for none.
pub struct Clients {
    /// Unique in this process: keys of session pools depend on it.
    id: u64,
    settings: Settings,
    guard: Guard,
    resolver: Arc<Resolver>,
    /// What is in the CA file, to tell when it has changed.
    ca: Option<Vec<u8>>,
    tls: OnceLock<ClientConfig>,
    made: Mutex<HashMap<(ThreadId, Option<IpAddr>), reqwest::Client>>,
}

impl Clients {
    pub fn new(settings: &Settings, guard: Guard, resolver: Arc<Resolver>) -> Self {
        let ca_file = settings.ca_file.as_ref();
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        Clients {
            id: SERIAL.fetch_add(1, Ordering::Relaxed),
            settings: settings.clone(),
            guard,
            resolver,
            ca: ca_file.and_then(|path| std::fs::read(path).ok()),
            tls: OnceLock::new(),
            made: Mutex::default(),
        }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn guard(&self) -> Guard {
        self.guard
    }

    /// Whether connections of the other one are as good as these.
    pub fn same_as(&self, other: &Clients) -> bool {
        self.settings == other.settings && self.guard == other.guard && self.ca == other.ca
    }

    pub fn get(&self, source: Option<IpAddr>) -> Result<reqwest::Client, Problem> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (std::thread::current().id(), source);
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        let client = self.make(source)?;
        made.insert(key, client.clone());
        Ok(client)
    }

    fn make(&self, source: Option<IpAddr>) -> Result<reqwest::Client, Problem> {
        let tls = match self.tls.get() {
            Some(tls) => tls.clone(),
            None => {
                let tls = roots::client_config(self.settings.ca_file.as_deref())?;
                self.tls.get_or_init(|| tls).clone()
            }
        };
        reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(Names {
                resolver: self.resolver.clone(),
                guard: self.guard,
                source,
            }))
            // Each hop is checked, and loses the credentials where it leaves the origin: exec follows them itself.
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .local_address(source)
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .user_agent(concat!("ati/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|_| Problem::new("the HTTP client can't be set up"))
    }
}

/// For the command line on its way to a proxy: one request, and no certificates read where none are needed.
pub fn proxy_client(tls: bool) -> Result<reqwest::Client, Problem> {
    let config = if tls {
        roots::client_config(None)?
    } else {
        roots::no_trust()?
    };
    let names = Names {
        resolver: Arc::new(Resolver::new(&[])),
        guard: Guard::Off,
        source: None,
    };
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .dns_resolver(Arc::new(names))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .user_agent(concat!("ati/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|_| Problem::new("the HTTP client can't be set up"))
}

struct Names {
    resolver: Arc<Resolver>,
    guard: Guard,
    source: Option<IpAddr>,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, guard, source) = (self.resolver.clone(), self.guard, self.source);
        Box::pin(async move {
            let found = resolver.lookup(name.as_str()).await.ok_or(Unresolved)?;
            // One inside address is enough: nobody outside has a reason to name it.
            if guard != Guard::Off && !found.addresses.iter().all(|ip| is_public(*ip)) {
                guard.judge(name.as_str())?;
            }
            let reachable =
                move |ip: &IpAddr| source.is_none_or(|from| from.is_ipv4() == ip.is_ipv4());
            let addresses: Vec<SocketAddr> = found
                .addresses
                .into_iter()
                .filter(reachable)
                .map(|ip| SocketAddr::new(ip, 0))
                .collect();
            if addresses.is_empty() {
                return Err(Unresolved.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// What a failed request was about. Its own text would tell the URL.
pub fn fault(error: &reqwest::Error) -> Result<UpstreamFault, Blocked> {
    if let Some(blocked) = cause::<Blocked>(error) {
        return Err(blocked.clone());
    }
    Ok(if cause::<Unresolved>(error).is_some() {
        UpstreamFault::Unresolved
    } else if error.is_timeout() && error.is_connect() {
        UpstreamFault::ConnectTimeout
    } else if error.is_timeout() {
        UpstreamFault::Timeout
    } else if cause::<rustls::Error>(error).is_some() {
        UpstreamFault::Tls
    } else if error.is_connect() {
        UpstreamFault::Connect
    } else if error.is_decode() || error.is_body() || error.is_request() {
        UpstreamFault::Closed
    } else {
        UpstreamFault::Protocol
    })
}

/// Errors are wrapped in errors, and some hide in an `io::Error`.
fn cause<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
