//! Builds snapshots, step by step. Each step reports its problems; any problem means no snapshot.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Snapshot, certificates, doors, keys, sandboxes, skill_registry};
use crate::auth::signature::{Mode, SigningKeys};
use crate::auth::token::{VerificationKey, Verifier};
use crate::catalog::files::builtin_manifest;
use crate::catalog::{Catalog, Handler, Specs};
use crate::config::{self, JwtSettings, ManifestFile, Settings};
use crate::egress::{self, Clients, Resolver};
use crate::error::Problem;
use crate::exec::credentials::SharedCredentials;
use crate::keyring::stored::StoredCredentials;
use crate::keyring::{self, KeptKeys, Keyring, SIGNING_SECRET};
use crate::route::Table;
use crate::skills::Registry;

/// RFC 7518 wants an HS256 secret to be as long as the hash.
const SHORTEST_HS256_SECRET: usize = 32;

pub struct Built {
    pub snapshot: Snapshot,
    pub warnings: Vec<Problem>,
}

/// Why there is no snapshot.
#[derive(Debug, Default)]
pub struct BuildFailure {
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

impl From<Vec<Problem>> for BuildFailure {
    fn from(problems: Vec<Problem>) -> Self {
        BuildFailure {
            problems,
            ..BuildFailure::default()
        }
    }
}

/// What the steps report.
struct Report {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Report {
    fn new(settings: &Settings) -> Self {
        Report {
            problems: Vec::new(),
            warnings: settings.warnings.clone(),
        }
    }

    fn fail(mut self) -> BuildFailure {
        self.add_lines();
        BuildFailure {
            problems: self.problems,
            warnings: self.warnings,
        }
    }

    fn add_lines(&mut self) {
        config::add_lines(&mut self.problems);
        config::add_lines(&mut self.warnings);
    }
}

impl Snapshot {
    /// Everything that the settings name, for a server, with the credentials that the database has.
    /// A one-shot key that it reads is added to the kept ones.
    pub fn build(
        settings: Settings,
        kept: &KeptKeys,
        stored: &Arc<StoredCredentials>,
    ) -> Result<Built, BuildFailure> {
        let mut report = Report::new(&settings);
        let verifier = verifier(&settings, &mut report);
        let certificates =
            certificates::load(&settings, &mut report.problems, &mut report.warnings);
        let specs = Specs::of(&settings.ati_dir);
        let (manifests, mut catalog) =
            catalog(&settings, &specs, Some(&settings.egress), &mut report);
        catalog.compile_schemas(&mut report.warnings);
        if doors::withholds_files(&settings) {
            catalog.withhold_files();
        }
        catalog.prepare_search();
        doors::check_tools(
            &settings,
            &catalog,
            &mut report.problems,
            &mut report.warnings,
        );

        let skills = Registry::load(&settings.ati_dir, &mut report.warnings);

        // A one-shot key can be read only once, so all other problems must be known before.
        if settings.keyring.places.would_spend() {
            check_routes(&manifests, &settings, &mut report);
            if !report.problems.is_empty() {
                return Err(report.fail());
            }
        }
        let keyring = keys::load_for_server(
            &settings.keyring,
            kept,
            &mut report.problems,
            &mut report.warnings,
        )
        .with_stored(stored.clone());
        let routes = routes(&manifests, &settings, &keyring, &mut report);
        warn_about_missing_keys(&catalog, &keyring, &mut report.warnings);
        let mut snapshot = Snapshot {
            routes: Arc::new(routes),
            skills: Arc::new(skills),
            certificates: Arc::new(certificates),
            ..assemble(settings, verifier, catalog, keyring)
        };
        skill_registry::check(&snapshot, &mut report.warnings);
        // The first client is made now: a CA file that can't be read is reported at the start.
        let source = snapshot.settings.egress.source;
        if let Err(problem) = snapshot.clients.get(source) {
            report.problems.push(problem);
        }
        snapshot.signing = signing(&snapshot, &mut report).map(Arc::new);
        warn_about_unlocked_memory(&mut report.warnings);
        if !report.problems.is_empty() {
            return Err(report.fail());
        }
        report.add_lines();
        Ok(Built {
            snapshot,
            warnings: report.warnings,
        })
    }

    /// What a command needs in order to list tools and to call one: the catalogue and the verifier.
    /// Routes, certificates and signing keys are left out. HTTP clients are made and schemas are
    /// compiled at their first use.
    ///
    /// `only` names the tool that is wanted: documents of other providers aren't read.
    ///
    /// The keyring is empty, see [`Snapshot::with_command_keyring`].
    pub fn build_for_command(
        settings: Settings,
        only: Option<&str>,
    ) -> Result<Built, BuildFailure> {
        let mut report = Report::new(&settings);
        let verifier = verifier(&settings, &mut report);
        let specs = match only {
            None => Specs::of(&settings.ati_dir),
            Some(tool) => Specs::of(&settings.ati_dir).only_for(tool),
        };
        // Named egress addresses belong to the settings of a server; a command connects from any.
        let (_, catalog) = catalog(&settings, &specs, None, &mut report);
        if !report.problems.is_empty() {
            return Err(report.fail());
        }
        Ok(Built {
            snapshot: assemble(settings, verifier, catalog, Keyring::empty()),
            warnings: report.warnings,
        })
    }

    /// As [`Snapshot::build_for_command`], of one manifest that no folder holds.
    pub fn build_of_manifest(
        settings: Settings,
        manifest: ManifestFile,
    ) -> Result<Built, BuildFailure> {
        let mut report = Report::new(&settings);
        let verifier = verifier(&settings, &mut report);
        let catalog = Catalog::build(
            &mut [manifest],
            &Specs::of(&settings.ati_dir),
            None,
            &mut report.problems,
            &mut report.warnings,
        );
        sandboxes::close(&settings);
        if !report.problems.is_empty() {
            return Err(report.fail());
        }
        Ok(Built {
            snapshot: assemble(settings, verifier, catalog, Keyring::empty()),
            warnings: report.warnings,
        })
    }

    /// The same snapshot with the keyring of this machine, and with `ATI_KEY_<NAME>` variables for
    /// names that are in no file. A step of its own, because it may use up a one-shot key: a
    /// command that needs no credential leaves that key alone.
    pub fn with_command_keyring(&self) -> Result<(Snapshot, Vec<Problem>), Problem> {
        let loaded = keys::load_for_command(&self.settings.keyring.places)?;
        let snapshot = Snapshot {
            keyring: Arc::new(loaded.keyring.or(keyring::load_environment())),
            credentials: Arc::new(SharedCredentials::new(self.catalog.providers().len())),
            keyring_loaded: SystemTime::now(),
            ..self.clone()
        };
        Ok((snapshot, loaded.warnings))
    }
}

/// A snapshot of these parts, without routes, certificates and signing keys.
fn assemble(
    settings: Settings,
    verifier: Option<Verifier>,
    catalog: Catalog,
    keyring: Keyring,
) -> Snapshot {
    let resolver = Arc::new(Resolver::new(&settings.egress.nameservers));
    let clients = Clients::new(&settings.egress, settings.guard, resolver.clone());
    Snapshot {
        keyring: Arc::new(keyring),
        keyring_loaded: SystemTime::now(),
        signing: None,
        verifier: verifier.map(Arc::new),
        credentials: Arc::new(SharedCredentials::new(catalog.providers().len())),
        catalog: Arc::new(catalog),
        routes: Arc::default(),
        skills: Arc::default(),
        certificates: Arc::default(),
        resolver,
        clients: Arc::new(clients),
        settings: Arc::new(settings),
    }
}

fn verifier(settings: &Settings, report: &mut Report) -> Option<Verifier> {
    let jwt = settings.jwt.as_ref()?;
    match load_verifier(jwt, &mut report.warnings) {
        Ok(verifier) => Some(verifier),
        Err(problem) => {
            report.problems.push(problem);
            None
        }
    }
}

/// The verifier of session tokens, with the key that the settings name.
pub fn load_verifier(jwt: &JwtSettings, warnings: &mut Vec<Problem>) -> Result<Verifier, Problem> {
    let key = jwt.key.load()?;
    if let VerificationKey::Hs256(secret) = &key
        && secret.expose().len() < SHORTEST_HS256_SECRET
    {
        warnings.push(Problem::new(format!(
            "the HS256 secret has less than {SHORTEST_HS256_SECRET} bytes"
        )));
    }
    Ok(Verifier::new(&key, &jwt.expect))
}

fn catalog(
    settings: &Settings,
    specs: &Specs<'_>,
    egress: Option<&egress::Settings>,
    report: &mut Report,
) -> (Vec<ManifestFile>, Catalog) {
    let mut manifests = config::read_manifests(&settings.ati_dir, &mut report.problems);
    manifests.extend(builtin_manifest(&manifests));
    let catalog = Catalog::build(
        &mut manifests,
        specs,
        egress,
        &mut report.problems,
        &mut report.warnings,
    );
    sandboxes::close(settings);
    sandboxes::check(&catalog, &mut report.problems, &mut report.warnings);
    (manifests, catalog)
}

fn routes(
    manifests: &[ManifestFile],
    settings: &Settings,
    keyring: &Keyring,
    report: &mut Report,
) -> Table {
    Table::build(
        manifests,
        settings.passthrough,
        keyring,
        &settings.egress,
        &mut report.problems,
        &mut report.warnings,
    )
}

/// Report the problems of routes without a keyring. Its warnings are all about missing keys.
fn check_routes(manifests: &[ManifestFile], settings: &Settings, report: &mut Report) {
    Table::build(
        manifests,
        settings.passthrough,
        &Keyring::empty(),
        &settings.egress,
        &mut report.problems,
        &mut Vec::new(),
    );
}

/// A tool whose key is missing refuses its calls. A name that only tenants have is there for them.
fn warn_about_missing_keys(catalog: &Catalog, keyring: &Keyring, warnings: &mut Vec<Problem>) {
    for provider in catalog.providers() {
        // A name that is empty was reported with the field that lacks it.
        for name in provider.key_names().into_iter().filter(|it| !it.is_empty()) {
            if !keyring.has_shared(name) && !keyring.has_tenants_of(name) {
                let refused = match provider.handler {
                    Handler::FileManager(_) => "uploads to the destination that needs it",
                    _ => "calls of its tools",
                };
                let message = format!("'{name}' is not in the keyring; {refused} are refused");
                warnings.push(
                    Problem::new(message)
                        .file(&provider.file)
                        .missing_credential(name),
                );
            }
        }
    }
}

/// The keys of request signatures. Without one, every request would get 403 in enforce mode, which
/// is a problem.
fn signing(snapshot: &Snapshot, report: &mut Report) -> Option<SigningKeys> {
    let signing = SigningKeys::of(&snapshot.keyring, &mut report.warnings);
    // Where the keyring itself couldn't be loaded, that problem is enough.
    if !report.problems.is_empty() {
        return signing;
    }
    if signing.is_none() && snapshot.settings.signature.mode == Mode::Enforce {
        report.problems.push(
            Problem::new("signature mode 'enforce' needs it in the keyring, and not empty")
                .key(SIGNING_SECRET),
        );
    }
    doors::check_routes(snapshot, signing.is_some(), &mut report.warnings);
    signing
}

fn warn_about_unlocked_memory(warnings: &mut Vec<Problem>) {
    if keyring::memory_lock_refused() {
        warnings.push(Problem::new(
            "the kernel refused to lock memory for secrets; raise LimitMEMLOCK (ulimit -l)",
        ));
    }
}
