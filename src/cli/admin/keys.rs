//! `ati admin keys`.

use serde_json::{Value, json};

use super::place::Place;
use crate::auth::virtual_keys::request::{IssueRequest, RevokeRequest};
use crate::cli::{Format, output};
use crate::error::Failure;
use crate::keyring::customer::parse_id;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Issue a key, and print it: the only time that it can be seen
    Issue(Box<Issue>),
    /// List the keys of a user, the newest first
    List {
        /// The user whose keys are listed
        user: String,
        #[command(flatten)]
        place: At,
    },
    /// Show everything about one key but the key itself
    Show {
        /// The key's hash, as issue and list print it
        #[arg(value_parser = parse_hash)]
        hash: String,
        #[command(flatten)]
        place: At,
    },
    /// Revoke keys: one by its hash, or all that the filters fit
    Revoke(Revoke),
}

#[derive(clap::Args)]
pub struct At {
    /// Use the database of ATI_DB_URL even where ATI_PROXY_URL names a proxy
    #[arg(long)]
    direct: bool,
}

#[derive(clap::Args)]
pub struct Issue {
    /// The user that the key belongs to: the subject of its calls
    user: String,
    /// The key's name; a user's keys have different ones
    alias: String,
    /// A tool that the key opens; several times for several
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    /// A provider whose tools the key opens
    #[arg(long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// A category whose tools the key opens
    #[arg(long = "category", value_name = "NAME")]
    categories: Vec<String>,
    /// A skill that the key opens
    #[arg(long = "skill", value_name = "NAME")]
    skills: Vec<String>,
    /// When it ends, in seconds from now; never, unless set
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    expires_in: Option<i64>,
    /// A limit, as in a token, like tool:github:*=10/hour
    #[arg(long = "rate", value_name = "PATTERN=LIMIT")]
    rates: Vec<String>,
    /// The customer whose credentials its calls use
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    customer: Option<String>,
    /// Anything that you want to keep with it, as JSON
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// Who issues it, for the audit
    #[arg(long, value_name = "NAME", default_value = "admin")]
    by: String,
    #[command(flatten)]
    place: At,
}

#[derive(clap::Args)]
#[group(id = "which", required = true, multiple = true, args = ["hashes", "user", "alias_prefix"])]
pub struct Revoke {
    /// The hashes of the keys
    #[arg(value_parser = parse_hash)]
    hashes: Vec<String>,
    /// All keys of this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// All keys whose alias begins like this; with --user, of that user alone
    #[arg(long, value_name = "TEXT")]
    alias_prefix: Option<String>,
    /// Who revokes them, for the audit
    #[arg(long, value_name = "NAME", default_value = "admin")]
    by: String,
    #[command(flatten)]
    place: At,
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    match command {
        Command::Issue(issue) => self::issue(*issue, asked)?,
        Command::List { user, place } => {
            let keys = Place::find(place.direct)?.list(&user)?;
            output::lines_or_value(asked, || list(&keys), || json!(keys));
        }
        Command::Show { hash, place } => {
            let key = Place::find(place.direct)?.show(&hash)?;
            output::value(&key, asked.unwrap_or(Format::Json));
        }
        Command::Revoke(revoke) => return self::revoke(revoke, asked),
    }
    Ok(0)
}

/// As the database has it.
fn parse_hash(text: &str) -> Result<String, String> {
    let expected = "expected 64 digits and letters a to f, as issue and list print them";
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(expected.to_owned()),
    }
}

fn issue(wanted: Issue, asked: Option<Format>) -> Result<(), Failure> {
    let mut rate = std::collections::BTreeMap::new();
    for limit in &wanted.rates {
        let expected = || Failure::invalid("--rate: expected PATTERN=LIMIT, like tool:a:*=10/hour");
        let (pattern, limit) = limit.rsplit_once('=').ok_or_else(expected)?;
        rate.insert(pattern.to_owned(), limit.to_owned());
    }
    let metadata = match &wanted.metadata {
        None => None,
        Some(text) => Some(
            serde_json::from_str::<Value>(text)
                .map_err(|e| Failure::invalid("--metadata isn't JSON").because(e))?,
        ),
    };
    let request = IssueRequest {
        user_id: wanted.user,
        alias: wanted.alias,
        tools: wanted.tools,
        providers: wanted.providers,
        categories: wanted.categories,
        skills: wanted.skills,
        expires_in_secs: wanted.expires_in,
        rate: Some(rate),
        customer_id: wanted.customer,
        metadata,
        created_by: Some(wanted.by.clone()),
    };
    let issued = Place::find(wanted.place.direct)?.issue(request, &wanted.by)?;
    // The key alone on stdout, so that a script can take it.
    output::lines_or_value(
        asked,
        || {
            output::line(&issued.raw);
            output::note(&format!("its hash is {}", issued.hash));
        },
        || {
            json!({
                "raw_key": issued.raw,
                "hash": issued.hash,
                "alias": issued.alias,
                "expires_at": issued.expires_at,
            })
        },
    );
    Ok(())
}

fn list(keys: &[Value]) {
    if keys.is_empty() {
        output::note("this user has no keys");
        return;
    }
    let text = |key: &Value, name: &str| match &key[name] {
        Value::String(text) => output::printable(text),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let columns = [
        "key_alias",
        "token_hash",
        "expires_at",
        "request_count",
        "last_used_at",
    ];
    let headers = ["ALIAS", "HASH", "EXPIRES", "REQUESTS", "LAST USED"];
    let rows = keys.iter();
    let rows = rows.map(|key| columns.iter().map(|name| text(key, name)).collect());
    output::table(&headers, rows);
}

/// Exit code 1 where a key that was named is not there: it may have been mistyped, and still work.
fn revoke(mut wanted: Revoke, asked: Option<Format>) -> Result<u8, Failure> {
    let place = Place::find(wanted.place.direct)?;
    wanted.hashes.sort_unstable();
    wanted.hashes.dedup();
    let by_hash_alone = wanted.user.is_none() && wanted.alias_prefix.is_none();
    if let ([hash], true) = (&*wanted.hashes, by_hash_alone) {
        place.revoke(hash, &wanted.by)?;
        let line = format!("revoked {}", output::printable(hash));
        output::lines_or_value(asked, || output::line(&line), || json!({"revoked": true}));
        return Ok(0);
    }
    let named = wanted.hashes.len() as u64;
    let request = RevokeRequest {
        user_id: wanted.user,
        alias_prefix: wanted.alias_prefix,
        hashes: Some(wanted.hashes),
    };
    let revoked = place.revoke_all(request, &wanted.by)?;
    let line = format!("revoked {revoked}");
    output::lines_or_value(
        asked,
        || output::line(&line),
        || json!({"revoked": revoked}),
    );
    if by_hash_alone && revoked < named {
        output::note(&format!("{} of these keys are not there", named - revoked));
        return Ok(1);
    }
    Ok(0)
}
