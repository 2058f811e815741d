//! HTTP clients for tools. They resolve names with ati's own resolver, so that the address that
//! was checked is the address that is dialled.

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;
use rustls::ClientConfig;

use super::address::is_public;
use super::guard::{Blocked, Guard};
use super::http1::KnownHttp1;
use super::origin::Origin;
use super::resolve::Resolver;
use super::{Allowlist, ClientIdentity, Settings, Unresolved, roots};
use crate::error::{Problem, UpstreamFault};

pub(super) const USER_AGENT: &str = concat!("ati/", env!("CARGO_PKG_VERSION"));
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than servers keep idle connections; Node's and Python's close them after five seconds.
/// A request on a connection that its server is closing is lost, and can't always be repeated.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// A pool of clients, one for each thread and source address. A connection is driven by the thread
/// that opened it, so threads don't share connections: a busy one would delay the others. Clients
/// are made on first use, so that a command that calls nothing makes none.
pub struct Clients {
    /// Unique in this process: keys of session pools depend on it.
    id: u64,
    settings: Settings,
    guard: Guard,
    resolver: Arc<Resolver>,
    /// The content of the CA file, to detect that it has changed.
    ca: Option<Vec<u8>>,
    tls: OnceLock<Arc<ClientConfig>>,
    http1: KnownHttp1,
    made: Mutex<HashMap<(ThreadId, Option<IpAddr>), reqwest::Client>>,
    /// The same settings with the guard on, and with it off.
    public_only: OnceLock<Box<Clients>>,
    unguarded: OnceLock<Box<Clients>>,
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
            ca: ca_file.and_then(|path| crate::files::read(path).ok()),
            tls: OnceLock::new(),
            http1: KnownHttp1::default(),
            made: Mutex::default(),
            public_only: OnceLock::new(),
            unguarded: OnceLock::new(),
        }
    }

    /// Clients that reach public addresses only, whatever the guard: for URLs that a server named.
    pub fn public_only(&self) -> &Clients {
        self.guarded_by(Guard::On, &self.public_only)
    }

    /// Clients without a guard, for servers that the operator wrote into a manifest and that no
    /// caller has a say in.
    pub fn unguarded(&self) -> &Clients {
        self.guarded_by(Guard::Off, &self.unguarded)
    }

    fn guarded_by<'a>(&'a self, guard: Guard, made: &'a OnceLock<Box<Clients>>) -> &'a Clients {
        if self.guard == guard {
            return self;
        }
        made.get_or_init(|| Box::new(Clients::new(&self.settings, guard, self.resolver.clone())))
    }

    /// Where files may be downloaded from.
    pub fn downloads(&self) -> &Allowlist {
        &self.settings.downloads
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn guard(&self) -> Guard {
        self.guard
    }

    /// Whether the other pool has the same settings, so that its connections can be kept.
    pub fn same_as(&self, other: &Clients) -> bool {
        self.settings == other.settings && self.guard == other.guard && self.ca == other.ca
    }

    pub fn get(&self, source: Option<IpAddr>) -> Result<reqwest::Client, Problem> {
        let mut made = self.made.lock();
        let key = (std::thread::current().id(), source);
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        let client = self.make(source)?;
        made.insert(key, client.clone());
        Ok(client)
    }

    /// The roots are read with the first connection that needs them.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, Problem> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let tls = roots::client_config(self.settings.ca_file.as_deref())?;
        Ok(self.tls.get_or_init(|| Arc::new(tls)).clone())
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Whether requests to this origin are sent by [`super::http1`].
    pub fn speaks_http1(&self, origin: &Origin) -> bool {
        !origin.tls || self.http1.contains(origin)
    }

    /// The version of HTTP that an origin answered in.
    pub fn note_version(&self, origin: &Origin, version: http::Version) {
        if !origin.tls {
            return;
        }
        if version <= http::Version::HTTP_11 {
            self.http1.add(origin);
        } else {
            self.http1.remove(origin);
        }
    }

    fn make(&self, source: Option<IpAddr>) -> Result<reqwest::Client, Problem> {
        reqwest::Client::builder()
            .tls_backend_preconfigured(ClientConfig::clone(&*self.tls()?))
            .dns_resolver(Arc::new(GuardedResolver {
                resolver: self.resolver.clone(),
                guard: self.guard,
                source,
            }))
            // Executors follow redirects themselves: they check each hop, and send credentials
            // to the first origin only.
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .local_address(source)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_nodelay(true)
            .user_agent(USER_AGENT)
            .build()
            .map_err(|e| no_client(&e))
    }
}

/// A client for the command line's requests to a proxy, without SSRF guard. Root certificates are
/// loaded only for TLS.
pub fn proxy_client(tls: bool) -> Result<reqwest::Client, Problem> {
    proxy_client_as(None, tls)
}

/// The same, with a certificate for a proxy that asks for one.
pub fn proxy_client_as(
    identity: Option<ClientIdentity>,
    tls: bool,
) -> Result<reqwest::Client, Problem> {
    let config = if tls {
        roots::client_config_as(identity, None)?
    } else {
        roots::client_config_without_roots()?
    };
    let resolver = GuardedResolver {
        resolver: Arc::new(Resolver::new(&[])),
        guard: Guard::Off,
        source: None,
    };
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .dns_resolver(Arc::new(resolver))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(USER_AGENT)
        .build()
        .map_err(|e| no_client(&e))
}

fn no_client(error: &reqwest::Error) -> Problem {
    Problem::new("the HTTP client can't be set up").because(error)
}

/// Resolves names for reqwest, and applies the SSRF guard to what they resolve to.
struct GuardedResolver {
    resolver: Arc<Resolver>,
    guard: Guard,
    source: Option<IpAddr>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, guard, source) = (self.resolver.clone(), self.guard, self.source);
        Box::pin(async move {
            let found = resolve(&resolver, guard, source, name.as_str()).await;
            let addresses = found.map_err(|error| match error {
                ResolveError::Unresolved(error) => Box::<dyn Error + Send + Sync>::from(error),
                ResolveError::Blocked(error) => error.into(),
            })?;
            let addresses = addresses.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

/// Why a name has no address for a connection.
pub(super) enum ResolveError {
    Unresolved(Unresolved),
    Blocked(Blocked),
}

/// The addresses of a name, if the guard lets them through: those that this source can reach.
pub(super) async fn resolve(
    resolver: &Resolver,
    guard: Guard,
    source: Option<IpAddr>,
    name: &str,
) -> Result<Vec<IpAddr>, ResolveError> {
    let found = resolver.lookup(name).await;
    let mut addresses = found.ok_or(ResolveError::Unresolved(Unresolved))?.addresses;
    // One internal address is enough: a public host has no reason to list one.
    if guard != Guard::Off && !addresses.iter().all(|ip| is_public(*ip)) {
        guard.report(name).map_err(ResolveError::Blocked)?;
    }
    addresses.retain(|ip| source.is_none_or(|from| from.is_ipv4() == ip.is_ipv4()));
    if addresses.is_empty() {
        return Err(ResolveError::Unresolved(Unresolved));
    }
    Ok(addresses)
}

/// Classifies a failed request. The error's own text isn't used: it contains the URL.
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

/// Searches the chain of causes, also inside of an `io::Error`, for an error of type `T`.
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
