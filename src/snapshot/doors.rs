//! Doors that these settings leave open: who could call tools, and who could use the credentials of
//! routes.

use super::Snapshot;
use crate::auth::signature::Mode;
use crate::catalog::Catalog;
use crate::config::Settings;
use crate::error::{Problem, Weight};
use crate::keyring::SIGNING_SECRET;

/// Where tools are called. An exemption of one of these paths opens them in enforce mode too.
const CALL_PATHS: [&str; 2] = ["/call", "/mcp"];
/// Where files come and go, for the file tools.
const FILE_PATHS: [&str; 3] = ["/call", "/mcp", "/files"];
/// Routes that a warning names.
const MOST_NAMES: usize = 5;

const TOKEN_KEYS: &str = "token keys (ATI_JWT_PUBLIC_KEY, or [jwt] in the conf file)";

/// Tools without token keys: a warning. Where not even a signature is asked for, and callers can
/// come from other machines: a problem, unless the operator says that this is meant.
///
/// It needs no keyring, so that a start that is refused doesn't cost the one-shot key.
pub(super) fn check_tools(
    settings: &Settings,
    catalog: &Catalog,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    if settings.jwt.is_some() {
        return;
    }
    if !catalog.offers_tools() {
        warnings.extend(withheld_files(settings));
        return;
    }
    let signature = &settings.signature;
    let exempt = CALL_PATHS.iter().find(|path| signature.is_exempt(path));
    let signed = signature.mode == Mode::Enforce && exempt.is_none();
    let mut listeners = settings.listeners.iter();
    let beyond = listeners.find(|listener| !listener.address.is_local());
    if let Some(listener) = beyond.filter(|_| !signed && !settings.insecure) {
        let signatures = match exempt.filter(|_| signature.mode == Mode::Enforce) {
            Some(path) => format!("{path} is exempt from signatures"),
            None => format!("signature mode is '{}'", signature.mode.as_str()),
        };
        let message = format!(
            "every caller that reaches {} could call every tool: there are no token keys, and \
             {signatures}. Configure {TOKEN_KEYS}, or set --sig-verify-mode enforce, or listen on \
             loopback (--bind 127.0.0.1), or say that it is meant: --insecure ([server] insecure = \
             true, ATI_INSECURE=1)",
            listener.address
        );
        problems.push(Problem::new(message));
        return;
    }
    let message = if signed {
        "no token keys: every caller with a valid signature may call every tool"
    } else {
        "no token keys: every caller may call every tool"
    };
    warnings.push(Problem::new(message).advice("jwt", format!("configure {TOKEN_KEYS}")));
}

/// Whether the file tools that are there without a manifest would be open to every caller of every
/// machine. They keep no proxy for routes from starting, so they are withheld.
pub(super) fn withholds_files(settings: &Settings) -> bool {
    let signature = &settings.signature;
    let exempt = FILE_PATHS.iter().any(|path| signature.is_exempt(path));
    let signed = signature.mode == Mode::Enforce && !exempt;
    let mut listeners = settings.listeners.iter();
    let beyond = listeners.any(|listener| !listener.address.is_local());
    beyond && settings.jwt.is_none() && !signed && !settings.insecure
}

fn withheld_files(settings: &Settings) -> Option<Problem> {
    if !withholds_files(settings) {
        return None;
    }
    let message = "no token keys: beyond loopback file_manager:download, file_manager:upload and \
                   /files are refused to every caller";
    let fix = format!(
        "where they are wanted, configure {TOKEN_KEYS}, or set --sig-verify-mode enforce, or write \
         a manifest with handler = \"file_manager\", or say --insecure"
    );
    let problem = Problem::new(message).weight(Weight::Tolerated);
    Some(problem.advice("jwt", fix))
}

/// Routes that an unsigned request may use. Without a secret no signature can be checked at all;
/// with one, `log` and `warn` are the documented way to `enforce`.
pub(super) fn check_routes(snapshot: &Snapshot, has_secret: bool, warnings: &mut Vec<Problem>) {
    let settings = &snapshot.settings;
    let mode = settings.signature.mode;
    if mode == Mode::Enforce || !settings.passthrough {
        return;
    }
    if !has_secret {
        let message =
            "not in the keyring: passthrough is open to every caller that reaches this port";
        let problem = Problem::new(message).key(SIGNING_SECRET);
        let fix = "put it into the keyring, and sign requests with it: docs/admission.md";
        warnings.push(problem.weight(Weight::Grave).advice("signing", fix));
        return;
    }
    let names: Vec<&str> = snapshot.routes.with_credentials().collect();
    if names.is_empty() {
        return;
    }
    let mut list = names[..names.len().min(MOST_NAMES)].join(", ");
    if names.len() > MOST_NAMES {
        list += &format!(" and {} more", names.len() - MOST_NAMES);
    }
    let message = format!(
        "signature mode '{}' refuses no request: every caller that reaches this port can use the \
         credentials of {list}",
        mode.as_str()
    );
    let fix = "once every sandbox signs its requests, set signature mode enforce: docs/vm.md";
    warnings.push(
        Problem::new(message)
            .weight(Weight::Tolerated)
            .advice("signing", fix),
    );
}
