//! `handler = "file_manager"`: downloads, and uploads to destinations that the manifest names.

mod destination;
mod tools;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use destination::{Destination, Gcs, S3, is_confidential};
pub use tools::{COMMAND_LINE_ONLY, builtin as builtin_tools};

use super::invocation::own_name;
use crate::config::{HandlerKind, ManifestFile, Origin, Section};
use crate::error::Problem;

/// The provider that is there without a manifest, and the begin of its tools' names.
pub const PROVIDER: &str = "file_manager";
/// In place of a manifest's path, in messages about the provider that has none.
const BUILT_IN: &str = "(built-in)";

/// What a file tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    Download,
    Upload,
}

impl FileOperation {
    pub const ALL: [Self; 2] = [FileOperation::Download, FileOperation::Upload];

    pub fn name(self) -> &'static str {
        match self {
            FileOperation::Download => "download",
            FileOperation::Upload => "upload",
        }
    }

    /// Of a tool that a manifest writes down: by its `endpoint`, or else by its own name.
    pub(super) fn read(s: &mut Section<'_>, tool: &str, provider: &str, endpoint: &str) -> Self {
        let by_name = |name: &str| Self::ALL.into_iter().find(|one| one.name() == name);
        let own = own_name(tool, provider);
        let own = own_name(own, PROVIDER);
        by_name(endpoint)
            .or_else(|| by_name(own))
            .unwrap_or_else(|| {
                let message = "a tool of a file_manager is named 'download' or 'upload', or has \
                               one of these as its endpoint";
                s.problem("name", message);
                FileOperation::Download
            })
    }
}

/// Where files may be uploaded to.
#[derive(Debug, Default)]
pub struct FileManager {
    destinations: BTreeMap<String, Destination>,
    default: Option<String>,
}

/// Why a call of `upload` has no destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDestination {
    /// The manifest has none.
    NoneAtAll,
    /// The call names none, and there is no default.
    NoDefault,
    Unknown,
}

impl FileManager {
    pub(super) fn read(s: &mut Section<'_>, warnings: &mut Vec<Problem>) -> Self {
        const DEFAULT: &str = "upload_default_destination";
        let mut destinations = BTreeMap::new();
        s.named("upload_destinations", warnings, |name, table| {
            if let Some(destination) = Destination::read(table) {
                destinations.insert(name.to_owned(), destination);
            }
        });
        let default: Option<String> = s.take(DEFAULT);
        if let Some(name) = &default
            && !destinations.contains_key(name)
        {
            let message = format!(
                "upload_default_destination '{name}' is not present in \
                 [provider.upload_destinations]"
            );
            s.problem_about(DEFAULT, &message);
        }
        FileManager {
            destinations,
            default,
        }
    }

    /// The destination of a call, and its name.
    pub fn choose(&self, name: Option<&str>) -> Result<(&str, &Destination), NoDestination> {
        if self.destinations.is_empty() {
            return Err(NoDestination::NoneAtAll);
        }
        let name = name.or(self.default.as_deref());
        let name = name.ok_or(NoDestination::NoDefault)?;
        let found = self.destinations.get_key_value(name);
        let (name, destination) = found.ok_or(NoDestination::Unknown)?;
        Ok((name, destination))
    }

    /// Names of the keyring entries that its destinations need.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.destinations
            .values()
            .flat_map(Destination::keys)
            .collect()
    }
}

/// The provider that is there where no manifest has one: downloads, and no destinations.
pub fn builtin_manifest(manifests: &[ManifestFile]) -> Option<ManifestFile> {
    let replaces =
        |one: &ManifestFile| one.handler == HandlerKind::FileManager || one.name == PROVIDER;
    if manifests.iter().any(replaces) {
        return None;
    }
    let mut provider = toml::Table::new();
    let description = "Downloads of files; uploads where a manifest names destinations";
    provider.insert("description".to_owned(), description.into());
    Some(ManifestFile {
        path: PathBuf::from(BUILT_IN),
        name: PROVIDER.to_owned(),
        handler: HandlerKind::FileManager,
        provider,
        tools: Vec::new(),
        unknown: Vec::new(),
        origin: Origin::Permanent,
        spec: None,
    })
}

/// Whether a provider is the one that no manifest has.
pub(super) fn is_builtin(file: &std::path::Path) -> bool {
    file.as_os_str() == BUILT_IN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, Handler, Specs};
    use crate::egress;

    fn build(text: &str) -> (Catalog, Vec<String>, Vec<String>) {
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let mut manifests = match text {
            "" => Vec::new(),
            text => vec![ManifestFile::from_text("f.toml", text)],
        };
        manifests.extend(builtin_manifest(&manifests));
        let catalog = Catalog::build(
            &mut manifests,
            &Specs::none(),
            Some(&egress::Settings::default()),
            &mut problems,
            &mut warnings,
        );
        let text = |list: Vec<Problem>| list.iter().map(ToString::to_string).collect();
        (catalog, text(problems), text(warnings))
    }

    fn names(catalog: &Catalog) -> Vec<&str> {
        catalog.public().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn file_tools_are_there_without_a_manifest_and_under_their_aliases() {
        let (catalog, problems, warnings) = build("");
        assert_eq!((problems, warnings), (vec![], vec![]));
        assert_eq!(
            names(&catalog),
            ["file_manager:download", "file_manager:upload"]
        );
        assert_eq!(catalog.providers().len(), 1);
        let tool = catalog.find("file_manager_upload").unwrap();
        assert_eq!(tool.scope.as_deref(), Some("tool:file_manager:upload"));
        assert!(!catalog.offers_tools(), "they alone need no token keys");
        let mut faults = Vec::new();
        catalog.compile_schemas(&mut faults);
        assert!(faults.is_empty(), "{faults:?}");
    }

    const MANIFEST: &str = "[provider]\nname = 'files'\nhandler = 'file_manager'\n\
        upload_default_destination = 'fal'\n\
        [provider.upload_destinations.fal]\nkind = 'fal_storage'\n\
        [provider.upload_destinations.g]\nkind = 'gcs'\nbucket = 'b'\n\
        [provider.upload_destinations.m]\nkind = 's3'\nbucket = 'b'\n\
        endpoint = 'http://10.0.0.1:9000'\naccess_key_ref = 'a'\nsecret_key_ref = 's'\n\
        [provider.upload_destinations.disk]\nkind = 'local'\ndirectory = '/srv/files'\n";

    #[test]
    fn manifest_of_any_name_replaces_the_built_in_provider() {
        let (catalog, problems, warnings) = build(MANIFEST);
        assert_eq!((problems, warnings), (vec![], vec![]));
        assert_eq!(
            names(&catalog),
            ["file_manager:download", "file_manager:upload"]
        );
        let provider = &catalog.providers()[0];
        assert_eq!(
            (catalog.providers().len(), provider.name.as_str()),
            (1, "files")
        );
        assert_eq!(
            provider.key_names(),
            ["fal_api_key", "gcp_credentials", "a", "s"]
        );
        assert!(catalog.offers_tools());
        let Handler::FileManager(manager) = &provider.handler else {
            panic!("{:?}", provider.handler);
        };
        assert_eq!(manager.choose(None).unwrap().0, "fal");
        assert_eq!(manager.choose(Some("disk")).unwrap().0, "disk");
        let refused = |name| manager.choose(name).unwrap_err();
        assert_eq!(refused(Some("other")), NoDestination::Unknown);
        let nothing = FileManager::default().choose(Some("x")).unwrap_err();
        assert_eq!(nothing, NoDestination::NoneAtAll);
    }

    #[test]
    fn mistakes_in_destinations_are_problems_that_name_them() {
        let (_, problems, warnings) = build(
            "[provider]\nname = 'file_manager'\nhandler = 'file_manager'\n\
             upload_default_destination = 'X'\n\
             [provider.upload_destinations.a]\nkind = 'ftp'\n\
             [provider.upload_destinations.b]\nkind = 'gcs'\nbukket = 'b'\n\
             [provider.upload_destinations.c]\nkind = 'local'\ndirectory = 'here'\n\
             [provider.upload_destinations.d]\nkind = 's3'\nbucket = 'b'\nendpoint = 'x'\n\
             access_key_ref = 'a'\nsecret_key_ref = 's'\npresign_seconds = 604801\n\
             [provider.upload_destinations.e]\nkind = 'fal_storage'\nendpoint = 'http://fal.test'\n",
        );
        let all = problems.join("\n");
        for expected in [
            "upload_destinations.a.kind: unknown kind 'ftp'; known are gcs, fal_storage, s3, local",
            "upload_destinations.b.bucket: kind 'gcs' needs it",
            "upload_destinations.c.directory: expected an absolute path",
            "upload_destinations.d.endpoint: expected an http:// or https:// URL",
            "upload_destinations.d.presign_seconds: expected 1 to 604800",
            "upload_destinations.e.endpoint: expected an https:// URL",
            "upload_default_destination 'X' is not present in [provider.upload_destinations]",
        ] {
            assert!(all.contains(expected), "{expected}:\n{all}");
        }
        assert!(
            warnings[0].contains("upload_destinations.b.bukket: unknown key"),
            "{warnings:?}"
        );
    }

    #[test]
    fn written_tools_are_the_only_ones_and_name_what_they_do() {
        let (catalog, problems, _) = build(
            "[provider]\nname = 'p'\nhandler = 'file_manager'\n[[tools]]\nname = 'fetch'\n\
             endpoint = 'download'\n[[tools]]\nname = 'p:upload'\n",
        );
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(names(&catalog), ["fetch", "p:upload"]);
        let (_, problems, _) =
            build("[provider]\nname = 'p'\nhandler = 'file_manager'\n[[tools]]\nname = 'fetch'\n");
        assert!(
            problems[0].contains("tools.fetch.name: a tool of a file_manager"),
            "{problems:?}"
        );
    }
}
