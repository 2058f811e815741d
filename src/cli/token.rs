//! `ati token`: signing keys and session tokens.

mod delegation;
mod rotate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use super::{Format, output, problem_failure, secret_input};
use crate::auth::keys::{KEY_ID, KeyError, PrivateKey, PublicKey, generate_secret, shared_secret};
use crate::auth::rate::Rate;
use crate::auth::scope;
use crate::auth::token::{
    self, Claims, DEFAULT_AUDIENCE, Namespace, Signer, VerificationKey, Verifier,
};
use crate::clock::unix_now;
use crate::config::{self, Environment, Flags};
use crate::error::{Code, Failure, Problem};
use crate::keyring::customer::parse_id;
use delegation::Delegation;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a signing key and print it
    Keygen {
        /// ES256: a key pair; only the issuer has the private key. HS256: one shared secret
        #[arg(long, value_enum, ignore_case = true, default_value = "ES256")]
        algorithm: Algorithm,
    },
    /// Sign a token and print it
    Issue(Box<Issue>),
    /// Keep a fresh token in a file until told to stop
    RotateFile(Box<rotate::RotateFile>),
    /// Print the claims of a token without verifying it
    Inspect {
        /// The token; - reads it from standard input, which keeps it out of `ps`
        token: String,
    },
    /// Verify a token as the proxy would; exit code 1 where it is not valid
    Validate {
        /// The token; - reads it from standard input, which keeps it out of `ps`
        token: String,
        #[command(flatten)]
        key: KeyArgs,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Algorithm {
    #[value(name = "ES256")]
    Es256,
    #[value(name = "HS256")]
    Hs256,
}

#[derive(clap::Args)]
pub struct KeyArgs {
    /// PEM file with an ES256 (P-256) key
    #[arg(long, value_name = "FILE", conflicts_with = "secret")]
    key: Option<PathBuf>,

    /// Shared HS256 secret, in hex
    #[arg(long, value_name = "HEX")]
    secret: Option<String>,
}

#[derive(clap::Args)]
pub struct Issue {
    /// The subject: the agent or sandbox that the token is for
    #[arg(long)]
    sub: String,

    /// The scopes it allows, separated by spaces: "tool:github:* skill:research-* help"
    #[arg(long)]
    scope: String,

    /// How long it is valid: seconds, or a number with s, m, h or d
    #[arg(long, visible_alias = "expires", default_value = "1800", value_parser = parse_ttl)]
    ttl: u64,

    /// The audience: the service that accepts it
    #[arg(long, default_value = DEFAULT_AUDIENCE)]
    aud: String,

    /// The issuer [default: $ATI_JWT_ISSUER]
    #[arg(long)]
    iss: Option<String>,

    #[command(flatten)]
    key: KeyArgs,

    /// The name (kid) of the signing key, for verifiers with several keys
    #[arg(long, value_name = "NAME")]
    kid: Option<String>,

    /// A rate limit, like "tool:github:*=10/hour"; repeatable
    #[arg(long, value_name = "PATTERN=N/UNIT", value_parser = parse_rate)]
    rate: Vec<(String, String)>,

    /// The job that the caller works on, for the audit log
    #[arg(long)]
    job_id: Option<String>,

    /// The sandbox of the caller, for the audit log
    #[arg(long)]
    sandbox_id: Option<String>,

    /// The customer whose credentials its calls use
    #[arg(long, value_parser = parse_id)]
    customer_id: Option<String>,

    #[command(flatten)]
    delegation: Delegation,
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    match command {
        Command::Keygen { algorithm } => keygen(algorithm, asked),
        Command::Issue(args) => issue(&args, asked),
        Command::RotateFile(args) => rotate::run(*args, asked),
        Command::Inspect { token } => inspect(&given(token)?),
        Command::Validate { token, key } => validate(&given(token)?, &key, asked),
    }
}

fn keygen(algorithm: Algorithm, asked: Option<Format>) -> Result<u8, Failure> {
    match algorithm {
        Algorithm::Es256 => {
            let key = PrivateKey::generate().map_err(unusable)?;
            let (private, public) = (key.to_pem(), key.public().to_pem());
            output::lines_or_value(
                asked,
                || {
                    output::line(private.trim_end());
                    output::line(public.trim_end());
                },
                || {
                    json!({
                        "algorithm": "ES256",
                        "private_key": private.as_str(),
                        "public_key": public.as_str(),
                    })
                },
            );
            info!("save both; ATI_JWT_PRIVATE_KEY and ATI_JWT_PUBLIC_KEY name the files");
        }
        Algorithm::Hs256 => {
            let secret = generate_secret().map_err(unusable)?;
            output::lines_or_value(
                asked,
                || output::line(&secret),
                || json!({"algorithm": "HS256", "secret": secret.as_str()}),
            );
            info!("set ATI_JWT_SECRET to it, where tokens are issued and where they are checked");
        }
    }
    Ok(0)
}

/// The token, from standard input where it is `-`.
fn given(token: String) -> Result<Zeroizing<String>, Failure> {
    match token.as_str() {
        "-" => secret_input::from_stdin(),
        _ => Ok(Zeroizing::new(token)),
    }
}

fn issue(args: &Issue, asked: Option<Format>) -> Result<u8, Failure> {
    warn_of_doubtful(&args.scope);
    let (token, claims) = mint(args)?;
    output::lines_or_value(
        asked,
        || output::line(&token),
        || {
            let [sub, scope, exp] = ["sub", "scope", "exp"].map(|name| &claims[name]);
            json!({"token": token, "sub": sub, "scope": scope, "exp": exp})
        },
    );
    Ok(0)
}

/// A new token of these flags, and what it says.
fn mint(args: &Issue) -> Result<(String, Value), Failure> {
    let now = unix_now();
    let claims = Claims {
        iss: args.iss.clone().or_else(|| Environment::read().issuer),
        sub: args.sub.clone(),
        aud: args.aud.clone(),
        iat: now,
        exp: now.saturating_add(args.ttl),
        jti: Some(uuid::Uuid::new_v4().to_string()),
        scope: args.scope.clone(),
        job_id: args.job_id.clone(),
        sandbox_id: args.sandbox_id.clone(),
        ati: Some(Namespace {
            v: 1,
            rate: args.rate.iter().cloned().collect::<BTreeMap<_, _>>(),
            customer_id: args.customer_id.clone(),
            delegation: None,
        }),
    };
    let claims = args.delegation.apply(claims, &args.key)?;
    let token = sign(&claims, &args.key, args.kid.as_deref())?;
    Ok((token, claims))
}

/// A token of these claims that proxies take.
pub(super) fn sign(
    claims: &impl Serialize,
    key: &KeyArgs,
    kid: Option<&str>,
) -> Result<String, Failure> {
    let token = signer(key)?
        .issue_as(claims, kid.unwrap_or(KEY_ID))
        .map_err(|e| Failure::new(Code::ExecutionFailed, "the token can't be signed").because(e))?;
    match token.len() {
        length if length > token::MAX_LENGTH => Err(Failure::invalid(format!(
            "the token would have {length} bytes, and proxies take {}",
            token::MAX_LENGTH
        ))
        .hint("name providers instead of single tools, like github:*")),
        _ => Ok(token),
    }
}

fn warn_of_doubtful(scopes: &str) {
    for doubt in scopes.split_whitespace().filter_map(doubtful) {
        warn!("--scope: {doubt}");
    }
}

fn inspect(token: &str) -> Result<u8, Failure> {
    let mut claims = token::inspect(token.trim())
        .ok_or_else(|| Failure::invalid("not a token: its claims can't be read"))?;
    let scopes: Vec<String> = claims
        .get("scope")
        .and_then(|scope| scope.as_str())
        .map(|scope| scope.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default();
    claims.insert("scopes".into(), json!(scopes));
    for name in ["ati", "aud", "exp", "iat", "iss", "jti", "scope", "sub"] {
        claims.entry(name).or_insert(serde_json::Value::Null);
    }
    output::pretty(&claims);
    Ok(0)
}

fn validate(token: &str, key: &KeyArgs, asked: Option<Format>) -> Result<u8, Failure> {
    let env = Environment::read();
    let expect = env.expectations(None, None);
    let verifier = Verifier::new(&verification_key(key, &env)?, &expect);
    let now = unix_now();
    match verifier.verify(token.trim(), now) {
        Ok(_) => {
            let claims = token::inspect(token.trim());
            let exp = claims.as_ref().and_then(|claims| claims.get("exp"));
            match exp.and_then(serde_json::Value::as_u64) {
                Some(exp) if exp <= now => {
                    info!("VALID (expired {} s ago, within the leeway)", now - exp);
                }
                _ => info!("VALID"),
            }
            output::done(asked, || json!({"valid": true}));
            Ok(0)
        }
        Err(fault) => {
            error!("INVALID — {fault}");
            output::done(
                asked,
                || json!({"valid": false, "reason": fault.to_string()}),
            );
            Ok(1)
        }
    }
}

/// Why a scope allows less than its issuer may think.
pub(super) fn doubtful(scope: &str) -> Option<String> {
    const KINDS: [&str; 3] = ["tool:", "skill:", "category:"];
    let known = scope == "*" || scope == "help";
    if known || KINDS.iter().any(|kind| scope.starts_with(kind)) {
        return None;
    }
    let offer = match scope.split_once(':') {
        Some((kind, rest)) => {
            let kind = format!("{kind}:");
            let meant = config::nearest(&kind, &KINDS);
            meant.map(|meant| format!("; did you mean '{meant}{rest}'?"))
        }
        None => None,
    };
    Some(format!(
        "'{scope}' is no scope that ati knows (tool:…, skill:…, category:…, help, *){}",
        offer.unwrap_or_default()
    ))
}

/// The signing key: of `--key`, `--secret`, the environment, then config.toml. A private key wins
/// over a shared secret.
fn signer(args: &KeyArgs) -> Result<Signer, Failure> {
    if let Some(path) = &args.key {
        let text = read(path)?;
        return PrivateKey::from_pem(&text)
            .map(Signer::Es256)
            .map_err(|e| unusable_file(path, e));
    }
    if let Some(secret) = &args.secret {
        return shared_secret(secret.as_bytes())
            .map(Signer::Hs256)
            .map_err(|e| Failure::invalid("--secret").because(e));
    }
    if let Some(key) = config::private_key_of_environment().map_err(from_problem)? {
        return Ok(Signer::Es256(key));
    }
    if std::env::var_os("ATI_JWT_SECRET").is_none() {
        let key = config::private_key_of_config(&config::ati_dir()).map_err(from_problem)?;
        if let Some(key) = key {
            return Ok(Signer::Es256(key));
        }
    }
    match configured_key(&Environment::read())? {
        Some(VerificationKey::Hs256(secret)) => Ok(Signer::Hs256(secret)),
        Some(VerificationKey::Es256(_)) => Err(Failure::new(
            Code::MissingKey,
            "only a public key is configured, and it can't sign: give --key with the private one, \
             or set ATI_JWT_PRIVATE_KEY",
        )),
        None => Err(no_key("ATI_JWT_PRIVATE_KEY")),
    }
}

fn verification_key(args: &KeyArgs, env: &Environment) -> Result<VerificationKey, Failure> {
    if let Some(path) = &args.key {
        let text = read(path)?;
        // A private key file is accepted too: it contains the public key.
        return PrivateKey::from_pem(&text)
            .map(|key| key.public().clone())
            .or_else(|_| PublicKey::from_pem(&text))
            .map(|key| VerificationKey::Es256(vec![key.into()]))
            .map_err(|e| unusable_file(path, e));
    }
    if let Some(secret) = &args.secret {
        return shared_secret(secret.as_bytes())
            .map(VerificationKey::Hs256)
            .map_err(|e| Failure::invalid("--secret").because(e));
    }
    configured_key(env)?.ok_or_else(|| no_key("ATI_JWT_PUBLIC_KEY"))
}

/// The key that the proxy of this machine would verify tokens with.
pub(super) fn configured_key(env: &Environment) -> Result<Option<VerificationKey>, Failure> {
    // The folder is the command's own to create, and the database isn't used.
    let env = Environment {
        database_url: None,
        ati_dir_named: false,
        ..env.clone()
    };
    let settings = config::resolve(&Flags::default(), &env)
        .map_err(|problems| Failure::from_problems("configuration", &problems))?;
    settings
        .jwt
        .map(|jwt| jwt.key.load().map_err(from_problem))
        .transpose()
}

fn no_key(variable: &str) -> Failure {
    Failure::new(
        Code::MissingKey,
        format!(
            "no keys found: give --key FILE or --secret HEX, or set {variable} or ATI_JWT_SECRET"
        ),
    )
}

fn from_problem(problem: Problem) -> Failure {
    problem_failure(Code::InvalidValue, &problem)
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    std::fs::read(path)
        .map(Zeroizing::new)
        .map_err(|e| Failure::invalid(format!("{}: can't be read", path.display())).because(e))
}

fn unusable_file(path: &Path, error: KeyError) -> Failure {
    Failure::invalid(path.display().to_string()).because(error)
}

fn unusable(error: KeyError) -> Failure {
    Failure::from_error(Code::ExecutionFailed, error)
}

/// A hundred years. A longer time is a typing error.
const LONGEST_TTL: u64 = 36_500 * 86_400;

pub(super) fn parse_ttl(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit))
        .filter(|seconds| (1..=LONGEST_TTL).contains(seconds))
        .ok_or_else(|| "seconds, or a number with s, m, h or d, like 3h; at most 36500d".to_owned())
}

pub(super) fn parse_rate(text: &str) -> Result<(String, String), String> {
    let (pattern, spec) = text.rsplit_once('=').ok_or("like tool:github:*=10/hour")?;
    if pattern.is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    if pattern != scope::HELP && !scope::can_cover_a_tool(pattern) {
        return Err(format!(
            "'{pattern}' can match no tool, so that it would limit nothing: a pattern is '*', or \
             'help' (questions at /help), or begins with 'tool:', and has a '*' at its end only, \
             like tool:github:*"
        ));
    }
    Rate::parse(spec).ok_or_else(|| format!("'{spec}' is no rate; like 10/hour"))?;
    Ok((pattern.to_owned(), spec.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_takes_seconds_or_a_number_with_a_unit() {
        assert_eq!(parse_ttl("1800"), Ok(1800));
        assert_eq!(parse_ttl("3h"), Ok(10_800));
        assert_eq!(parse_ttl("36500d"), Ok(LONGEST_TTL));
        for bad in [
            "",
            "0",
            "-5",
            "h",
            "3 weeks",
            "99999999999999999999",
            "99999999999999999d",
            "36501d",
            "18446744073709551615",
            "3é",
        ] {
            assert!(parse_ttl(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn scope_of_an_unknown_kind_is_doubtful() {
        for good in [
            "*",
            "help",
            "tool:github:*",
            "skill:research-*",
            "tool:x",
            "category:search",
        ] {
            assert_eq!(doubtful(good), None);
        }
        let typo = doubtful("tol:*").unwrap();
        assert!(typo.ends_with("did you mean 'tool:*'?"), "{typo}");
        assert!(doubtful("github").is_some());
    }

    #[test]
    fn rate_takes_a_pattern_and_a_limit() {
        assert_eq!(parse_rate("tool:a=5/min").unwrap().0, "tool:a");
        assert_eq!(parse_rate("help=5/min").unwrap().0, "help");
        for bad in ["tool:a", "=5/min", "tool:a=5", "tool:a=lots/hour"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        let error = parse_rate("t:get=5/min").unwrap_err();
        assert!(error.contains("'t:get' can match no tool"), "{error}");
    }
}
