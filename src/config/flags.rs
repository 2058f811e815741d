use std::path::PathBuf;

use super::LogFormat;
use crate::auth::signature::Mode;

// The groups of the help text.
const LISTENING: &str = "Listening";
const FILES: &str = "Folder and settings";
const KEYRING: &str = "Keyring";
const REQUESTS: &str = "Routes and signatures";

/// The flags of `ati proxy` and `ati check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct Flags {
    /// TCP port; 0 lets the system choose [default: 8090]
    #[arg(long, help_heading = LISTENING)]
    pub port: Option<u16>,

    /// Address to listen on, an IP literal; 0.0.0.0 for all interfaces [default: 127.0.0.1]
    #[arg(long, value_name = "IP", help_heading = LISTENING)]
    pub bind: Option<String>,

    /// Folder with manifests, keyring and skills [default: $ATI_DIR, then ~/.ati]
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    pub ati_dir: Option<PathBuf>,

    /// Settings of this appliance, see conf/ati.toml; flags and environment win over it
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub conf: Option<PathBuf>,

    /// Take credentials from ATI_KEY_* variables instead of the keyring on disk
    #[arg(long, help_heading = KEYRING)]
    pub env_keys: bool,

    /// Start with no credentials when keyring.enc exists and can't be decrypted
    #[arg(long, help_heading = KEYRING)]
    pub allow_empty_keyring: bool,

    /// Make the tables of the database in ATI_DB_URL, or bring them up to date, before the start
    #[arg(long, help_heading = FILES)]
    pub migrate: bool,

    /// Serve handler = "passthrough" manifests
    #[arg(long, help_heading = REQUESTS)]
    pub enable_passthrough: bool,

    /// What a missing or bad sandbox signature leads to [default: log]
    #[arg(long, value_enum, value_name = "MODE", help_heading = REQUESTS)]
    pub sig_verify_mode: Option<Mode>,

    /// How far a signature's timestamp may be off, in seconds [default: 60]
    #[arg(long, value_name = "SECONDS", help_heading = REQUESTS)]
    pub sig_drift_seconds: Option<u64>,

    /// Comma-separated path patterns that need no signature; replaces the built-in list
    #[arg(long, value_name = "PATTERNS", help_heading = REQUESTS)]
    pub sig_exempt_paths: Option<String>,

    /// Address of the admin listener (/metrics, /healthz, /ready); off unless set
    #[arg(long, value_name = "IP:PORT", help_heading = LISTENING)]
    pub admin: Option<String>,

    /// How the log looks; auto is text on a terminal and JSON otherwise [default: auto]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Serve tools to every caller: start on an address beyond loopback without token keys and
    /// without signature mode enforce
    #[arg(long, help_heading = LISTENING)]
    pub insecure: bool,

    /// Write the addresses in use to this file, as JSON, once requests are served
    #[arg(long, value_name = "FILE", help_heading = LISTENING)]
    pub ready_file: Option<PathBuf>,
}
