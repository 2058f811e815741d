//! Databases for the store: a SQLite file, or a real PostgreSQL from Debian in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ati::keyring::Secret;
use ati::store::{Row, Statement, Store, StoreError, Tables};
use tempfile::TempDir;

use super::eventually;

/// Runs the same bodies, `fn(&mut Database)`, on both engines, as tests in `sqlite` and `postgres`.
macro_rules! on_both_engines {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&mut $crate::support::database::Database::sqlite());
            })+
        }
        mod postgres {
            $(#[test]
            fn $name() {
                super::$name(&mut $crate::support::database::Database::postgres());
            })+
        }
    };
}
pub(crate) use on_both_engines;

pub struct Database {
    folder: TempDir,
    /// None: the file is SQLite's.
    server: Option<Server>,
    /// Of a server that also speaks TLS on loopback.
    tls_port: Option<u16>,
}

impl Database {
    /// A path for a file that isn't there yet.
    pub fn sqlite() -> Self {
        Database {
            folder: tempfile::tempdir().unwrap(),
            server: None,
            tls_port: None,
        }
    }

    /// An empty database of a server that runs for this test alone.
    pub fn postgres() -> Self {
        Database::started(None)
    }

    /// The same, with TLS on a port of loopback: the certificate and its key, as PEM.
    pub fn postgres_with_tls(certificate: &str, key: &str) -> Self {
        Database::started(Some((certificate, key)))
    }

    fn started(tls: Option<(&str, &str)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let user = User::current();
        user.give(folder.path());
        // Copied from a folder that was initialised once: that takes a second of processor time.
        let template = template(&user);
        let copied = Command::new("cp")
            .args(["-a"])
            .args([&template, &folder.path().join("data")])
            .status();
        assert!(copied.unwrap().success());
        let tls_port = tls.map(|(certificate, key)| {
            write_private(&folder.path().join("data/server.crt"), certificate);
            write_private(&folder.path().join("data/server.key"), key);
            // PostgreSQL can't choose one itself.
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        });
        user.give(&folder.path().join("data"));
        let server = Some(Server::start(&user, folder.path(), tls_port));
        Database {
            folder,
            server,
            tls_port,
        }
    }

    pub fn is_postgres(&self) -> bool {
        self.server.is_some()
    }

    /// The value of `ATI_DB_URL`.
    pub fn url(&self) -> String {
        let folder = self.folder.path().display();
        match &self.server {
            None => format!("sqlite:{folder}/store.db"),
            Some(_) => self.url_of("postgres"),
        }
    }

    /// The same for another user of PostgreSQL.
    pub fn url_of(&self, user: &str) -> String {
        let folder = self.folder.path().display();
        let port = self.tls_port.map(|port| format!("&port={port}"));
        let port = port.unwrap_or_default();
        format!("postgres://{user}@localhost/postgres?host={folder}{port}")
    }

    /// By way of TLS, with these parameters.
    pub fn tls_url(&self, parameters: &str) -> String {
        let port = self.tls_port.unwrap();
        format!("postgres://postgres@127.0.0.1:{port}/postgres?{parameters}")
    }

    /// The file of SQLite.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    pub fn open(&self, tables: Tables) -> Result<Store, StoreError> {
        Store::open(&Secret::new(self.url().as_bytes()).unwrap(), tables)
    }

    /// The store with all tables, as another process would use it.
    pub fn migrated(&self) -> Store {
        self.open(Tables::Migrate).unwrap()
    }

    /// Runs statements as an operator would, past ati.
    pub fn run(&self, statements: &[&str]) {
        let (program, arguments) = match &self.server {
            None => ("python3", vec!["-c".to_owned(), SQLITE.to_owned()]),
            Some(_) => ("psql", vec!["-qXtA".to_owned(), self.url()]),
        };
        for statement in statements {
            let mut command = Command::new(program);
            command.args(&arguments);
            match &self.server {
                None => command.args([self.file().to_str().unwrap(), statement]),
                Some(_) => command.args(["-c", statement]),
            };
            let output = command.output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{statement}: {stderr}");
        }
    }

    /// Everything that the database holds, as bytes: for secrets that must not be in it.
    pub fn dump(&self) -> Vec<u8> {
        match &self.server {
            None => {
                let mut all = Vec::new();
                for name in ["store.db", "store.db-wal"] {
                    all.extend(std::fs::read(self.folder.path().join(name)).unwrap_or_default());
                }
                all
            }
            Some(_) => {
                let output = Command::new(binaries().join("pg_dump"))
                    .arg(self.url())
                    .output();
                output.unwrap().stdout
            }
        }
    }

    /// Stops PostgreSQL, as its service would be stopped: clients lose their connections.
    pub fn stop(&mut self) {
        self.server.as_mut().unwrap().stop();
    }

    pub fn start_again(&mut self) {
        let server = Server::start(&User::current(), self.folder.path(), self.tls_port);
        self.server = Some(server);
    }
}

const SQLITE: &str = "import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=10)
connection.executescript(sys.argv[2])
connection.commit()";

/// Rows of one statement, for tests that look into the tables.
pub fn rows(store: &Store, statement: Statement) -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime
        .block_on(store.run(|db| async move { db.fetch(statement).await }))
        .unwrap()
}

/// PostgreSQL refuses to run as root, so it runs as Debian's user for it then.
struct User {
    name: Option<&'static str>,
}

impl User {
    fn current() -> Self {
        User {
            name: rustix::process::geteuid().is_root().then_some("postgres"),
        }
    }

    fn give(&self, path: &Path) {
        if let Some(name) = self.name {
            let status = Command::new("chown").arg("-R").arg(name).arg(path).status();
            assert!(status.unwrap().success());
        }
    }

    /// A command that ends with this test, even if the test is killed.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        if let Some(name) = self.name {
            command.args(["--reuid", name, "--regid", name, "--init-groups"]);
        }
        command
            .args(["--pdeathsig", "QUIT", "--"])
            .arg(binaries().join(program))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}

struct Server(Child);

impl Server {
    fn start(user: &User, folder: &Path, tls_port: Option<u16>) -> Self {
        let tls = tls_port.map_or_else(Vec::new, |port| {
            vec![
                "-clisten_addresses=127.0.0.1".to_owned(),
                format!("-cport={port}"),
                "-cssl=on".to_owned(),
            ]
        });
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let child = user
            .command("postgres")
            .arg("-D")
            .arg(folder.join("data"))
            // A socket in the folder: no port that another test could have.
            .args(["-c", "listen_addresses=", "-k"])
            .arg(folder)
            .args(["-c", "fsync=off", "-c", "full_page_writes=off"])
            .args(["-c", "shared_buffers=16MB", "-c", "max_connections=100"])
            .args(&tls)
            .stderr(log)
            .spawn()
            .unwrap();
        let mut server = Server(child);
        eventually("PostgreSQL to accept connections", || {
            if let Some(status) = server.0.try_wait().unwrap() {
                let log = std::fs::read_to_string(folder.join("log")).unwrap();
                panic!("PostgreSQL ended with {status}: {log}");
            }
            let ready = Command::new(binaries().join("pg_isready"))
                .args(["-q", "-h"])
                .arg(folder)
                .args(tls_port.map(|port| format!("-p{port}")))
                .status();
            ready.unwrap().success().then_some(())
        });
        server
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // SIGINT is its fast shutdown: clients are disconnected.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.0.wait();
    }
}

fn write_private(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
    let owner_alone = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, owner_alone).unwrap();
}

/// Where Debian has the server's programs: the newest version's folder.
fn binaries() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let version = |path: &PathBuf| -> Option<u32> { path.file_name()?.to_str()?.parse().ok() };
    let newest = versions
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/postgres").exists())
        .max_by_key(version);
    newest
        .expect("PostgreSQL isn't installed: .ci/deps test installs it")
        .join("bin")
}

/// An initialised data folder, made once for all tests of this build.
fn template(user: &User) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("postgres-{}", user.name.unwrap_or("own"));
    let template = folder.join(name);
    let lock = std::fs::File::create(folder.join("postgres.lock")).unwrap();
    lock.lock().unwrap();
    if !template.exists() {
        let making = tempfile::tempdir().unwrap();
        user.give(making.path());
        let data = making.path().join("data");
        let output = user
            .command("initdb")
            .args(["-D".as_ref(), data.as_os_str()])
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync", "--no-instructions"])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "initdb: {stderr}");
        // Renamed once it is whole: a test that is killed leaves nothing behind that looks so.
        let partial = folder.join("postgres-partial");
        let _ = std::fs::remove_dir_all(&partial);
        let copied = Command::new("cp")
            .arg("-a")
            .args([&data, &partial])
            .status();
        assert!(copied.unwrap().success());
        std::fs::rename(&partial, &template).unwrap();
    }
    template
}
