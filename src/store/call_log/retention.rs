use std::time::Duration;

use crate::store::{Db, Engine, StoreError, Timestamp, sql};

/// How often old rows are looked for.
const EVERY: Duration = Duration::from_secs(60);
/// Rows that one statement removes: it holds its locks for a few milliseconds.
const AT_ONCE: u64 = 1000;
/// Between two such statements, so that rows to be written get their turn.
const PAUSE: Duration = Duration::from_millis(20);
const DAY: i64 = 86_400_000;

/// How long rows are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// 0: for ever.
    pub days: u32,
    /// 0: as many as there are.
    pub rows: u64,
}

/// Removes rows that are too old or too many, for as long as the store lives.
pub async fn run(db: Db, retention: Retention) {
    let mut is_failing = false;
    loop {
        let swept = sweep(&db, retention).await;
        if let Err(e) = &swept
            && !is_failing
        {
            tracing::warn!(error = %e, "old rows of the call log can't be removed");
        }
        is_failing = swept.is_err();
        tokio::time::sleep(EVERY).await;
    }
}

async fn sweep(db: &Db, retention: Retention) -> Result<(), StoreError> {
    if retention.days > 0 {
        let kept = i64::from(retention.days).saturating_mul(DAY);
        if let Some(before) = Timestamp::now().plus_millis(-kept) {
            remove(db, before).await?;
        }
    }
    if retention.rows > 0 {
        let text = "select ended_at from ati_call_log where ended_at is not null \
                    order by ended_at desc limit 1 offset $1";
        let rows = i64::try_from(retention.rows).unwrap_or(i64::MAX);
        if let Some(row) = db.fetch_one(sql(text).int(rows)).await? {
            // Rows of the same millisecond go together.
            let last = row.time("ended_at")?;
            remove(db, last.plus_millis(1).unwrap_or(last)).await?;
        }
    }
    Ok(())
}

async fn remove(db: &Db, before: Timestamp) -> Result<(), StoreError> {
    let text = match db.engine() {
        Engine::Sqlite => {
            "delete from ati_call_log where request_id in ( \
             select request_id from ati_call_log where ended_at < $1 order by ended_at limit $2)"
        }
        // Edges that sweep at the same time take different rows.
        Engine::Postgres => {
            "delete from ati_call_log where request_id in ( \
             select request_id from ati_call_log where ended_at < $1 order by ended_at limit $2 \
             for update skip locked)"
        }
    };
    loop {
        let statement = sql(text).time(before).int(AT_ONCE as i64);
        if db.execute(statement).await? < AT_ONCE {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
