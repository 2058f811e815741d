use std::time::Duration;

use crate::store::{Db, Engine, Statement, StoreError, Timestamp, sql};

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
            let older = |statement: Statement| statement.time(before);
            remove(db, "ended_at < $1", older).await?;
        }
    }
    if retention.rows > 0 {
        let text = "select ended_at, request_id from ati_call_log where ended_at is not null \
                    order by ended_at desc, request_id desc limit 1 offset $1";
        let rows = i64::try_from(retention.rows).unwrap_or(i64::MAX);
        if let Some(row) = db.fetch_one(sql(text).int(rows)).await? {
            // Calls may have ended in the same millisecond: ids tell which of them go.
            let (ended, id) = (row.time("ended_at")?, row.uuid("request_id")?);
            let condition = match db.engine() {
                Engine::Sqlite => "ended_at <= $1 and (ended_at, request_id) <= ($1, $2)",
                // Rows of an existing deployment have microseconds.
                Engine::Postgres => {
                    "ended_at < $1::timestamptz + interval '1 millisecond' \
                     and (date_trunc('milliseconds', ended_at), request_id) <= ($1, $2)"
                }
            };
            remove(db, condition, |statement| statement.time(ended).uuid(id)).await?;
        }
    }
    Ok(())
}

/// Removes the rows that a condition of ati's own fits, oldest first.
async fn remove(
    db: &Db,
    condition: &str,
    with: impl Fn(Statement) -> Statement,
) -> Result<(), StoreError> {
    // Edges that sweep at the same time take different rows.
    let locking = match db.engine() {
        Engine::Sqlite => "",
        Engine::Postgres => "for update skip locked",
    };
    let text = format!(
        "delete from ati_call_log where request_id in ( \
         select request_id from ati_call_log where {condition} order by ended_at limit {AT_ONCE} \
         {locking})"
    );
    loop {
        let statement = with(Statement::repeated(text.clone()));
        if db.execute(statement).await? < AT_ONCE {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
