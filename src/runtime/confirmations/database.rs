//! Confirmations in a database that edges share. Only digests are kept: of the token, the caller,
//! the tool and the arguments.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::{
    Binding, ConfirmationsError, FORGET_AFTER, IssuedConfirmation, MOST, MOST_OF_ONE, digest,
    new_token,
};
use crate::clock::unix_now;
use crate::error::ConfirmationFault;
use crate::store::{Db, Store, StoreError, Timestamp, sql};

/// The members of a binding, as the table has them.
const CALLER: usize = 64;

pub async fn issue(
    store: &Arc<Store>,
    call: &Binding,
    time: Duration,
) -> Result<IssuedConfirmation, ConfirmationsError> {
    let token = new_token()?;
    let expires = unix_now() + time.as_secs();
    let row = (digest(&token), text(call), at(expires));
    let insert = |db| async move { insert(&db, row).await };
    match store.run(insert).await? {
        true => Ok(IssuedConfirmation { token, expires }),
        false => Err(io::Error::other("too many calls wait for a confirmation").into()),
    }
}

pub async fn consume(
    store: &Arc<Store>,
    digest: String,
    call: &Binding,
) -> Result<Result<(), ConfirmationFault>, ConfirmationsError> {
    let wanted = text(call);
    let take = |db| async move { take(&db, digest, wanted).await };
    Ok(store.run(take).await?)
}

/// False where too many wait.
async fn insert(
    db: &Db,
    (digest, binding, expires): (String, String, Timestamp),
) -> Result<bool, StoreError> {
    let mut transaction = db.begin().await?;
    let forgotten = at(unix_now().saturating_sub(FORGET_AFTER));
    let old = sql("delete from ati_confirmations where expires_at < $1").time(forgotten);
    transaction.execute(old).await?;
    // The oldest of a caller that has too many make room.
    let oldest = "delete from ati_confirmations where token_hash in ( \
                  select token_hash from ati_confirmations where substr(binding, 1, 64) = $1 \
                  order by expires_at desc, token_hash limit 10000 offset $2)";
    let caller = &binding[..CALLER];
    let oldest = sql(oldest).text(caller).int(MOST_OF_ONE as i64 - 1);
    transaction.execute(oldest).await?;
    // Those that have expired wait for nothing.
    let count = "select count(*) as waiting from ati_confirmations where expires_at > $1";
    let count = sql(count).time(Timestamp::now());
    let rows = transaction.fetch(count).await?;
    let waiting = rows.first().map_or(Ok(0), |row| row.int("waiting"))?;
    if waiting >= MOST as i64 {
        return Ok(false);
    }
    let insert = "insert into ati_confirmations (token_hash, binding, expires_at) \
                  values ($1, $2, $3)";
    let insert = sql(insert).text(digest).text(binding).time(expires);
    transaction.execute(insert).await?;
    transaction.commit().await?;
    Ok(true)
}

async fn take(
    db: &Db,
    digest: String,
    wanted: String,
) -> Result<Result<(), ConfirmationFault>, StoreError> {
    let find = "select binding, expires_at from ati_confirmations where token_hash = $1";
    let Some(row) = db.fetch_one(sql(find).text(&*digest)).await? else {
        return Ok(Err(ConfirmationFault::Unknown));
    };
    let binding = row.text("binding")?;
    if let Some(fault) = compare(&binding, &wanted) {
        return Ok(Err(fault));
    }
    let now = Timestamp::now();
    if row.time("expires_at")? <= now {
        return Ok(Err(ConfirmationFault::Expired));
    }
    // The commit point: of several edges that come this far, one removes the row.
    let remove = "delete from ati_confirmations \
                  where token_hash = $1 and binding = $2 and expires_at > $3 \
                  returning token_hash";
    let remove = sql(remove).text(digest).text(wanted).time(now);
    match db.fetch_written(remove).await?.is_empty() {
        false => Ok(Ok(())),
        true => Ok(Err(ConfirmationFault::Unknown)),
    }
}

/// How the call differs from the one that the token is for.
fn compare(binding: &str, wanted: &str) -> Option<ConfirmationFault> {
    let mut parts = binding.split(':').zip(wanted.split(':'));
    let mut differs = || parts.next().is_none_or(|(kept, wanted)| kept != wanted);
    if differs() {
        Some(ConfirmationFault::OtherCaller)
    } else if differs() {
        Some(ConfirmationFault::OtherTool)
    } else if differs() {
        Some(ConfirmationFault::ChangedArguments)
    } else {
        None
    }
}

/// `<caller>:<tool>:<arguments>`, each a digest in hex.
fn text(call: &Binding) -> String {
    let tool = hex::encode(Sha256::digest(call.tool.as_bytes()));
    let (caller, arguments) = (hex::encode(call.caller), hex::encode(call.arguments));
    format!("{caller}:{tool}:{arguments}")
}

fn at(seconds: u64) -> Timestamp {
    let millis = i64::try_from(seconds)
        .ok()
        .and_then(|it| it.checked_mul(1000));
    millis
        .and_then(Timestamp::from_millis)
        .unwrap_or_else(Timestamp::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_tells_in_what_a_call_differs() {
        let call = |caller: u8, tool: &str, arguments: u8| {
            text(&Binding {
                caller: [caller; 32],
                tool: tool.to_owned(),
                arguments: [arguments; 32],
            })
        };
        let kept = call(1, "a:b", 1);
        assert_eq!(kept.find(':'), Some(CALLER));
        for (other, fault) in [
            (call(1, "a:b", 1), None),
            (call(2, "c", 2), Some(ConfirmationFault::OtherCaller)),
            (call(1, "c", 2), Some(ConfirmationFault::OtherTool)),
            (call(1, "a:b", 2), Some(ConfirmationFault::ChangedArguments)),
        ] {
            assert_eq!(compare(&kept, &other), fault);
        }
    }
}
