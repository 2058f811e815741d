//! Rows of the call log as entries of the audit, which have the same members in a file.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::ROUTE;
use crate::store::{Db, Row, Statement, StoreError, Timestamp};
use crate::telemetry::audit::{self, Filter, StatusFilter};

/// Rows that are read at once while the log is followed.
const AT_ONCE: usize = 1000;
/// Rows are written a moment after their call ended, and edges have different clocks: so far back
/// is looked for rows that have not been seen.
const LATE: i64 = 15_000;

/// The last `count` entries that match, oldest first.
pub async fn tail(db: &Db, filter: &Filter, count: usize) -> Result<Vec<Value>, StoreError> {
    let rows = rows(db, filter, None, count).await?;
    rows.iter().rev().map(entry).collect()
}

/// Reads rows as they come.
pub struct Follower {
    filter: Filter,
    /// The rows that were shown and may be read again, and when their calls ended.
    seen: HashMap<Uuid, i64>,
    /// The end of the latest call so far.
    latest: i64,
}

impl Follower {
    /// The last `count` entries that match, and what will follow them.
    pub async fn start(
        db: &Db,
        filter: Filter,
        count: usize,
    ) -> Result<(Vec<Value>, Follower), StoreError> {
        let now = Timestamp::now().millis();
        let mut follower = Follower {
            filter,
            seen: HashMap::new(),
            latest: now,
        };
        // What is there already and not among the last isn't news.
        let recent = rows(db, &follower.filter, Some(now - LATE), usize::MAX).await?;
        follower.note(&recent)?;
        let last = rows(db, &follower.filter, None, count).await?;
        follower.note(&last)?;
        let entries = last.iter().rev().map(entry).collect::<Result<_, _>>()?;
        Ok((entries, follower))
    }

    /// The entries that have been added.
    pub async fn more(&mut self, db: &Db) -> Result<Vec<Value>, StoreError> {
        let from = self.latest - LATE;
        self.seen.retain(|_, ended| *ended >= from);
        let mut found = rows(db, &self.filter, Some(from), usize::MAX).await?;
        found.retain(|row| {
            let id = row.uuid("request_id");
            id.is_ok_and(|id| !self.seen.contains_key(&id))
        });
        self.note(&found)?;
        found.iter().rev().map(entry).collect()
    }

    fn note(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let ended = row.time("ended_at")?.millis();
            self.seen.insert(row.uuid("request_id")?, ended);
            self.latest = self.latest.max(ended);
        }
        Ok(())
    }
}

/// Matching rows, newest first, of calls that ended at `from` or later.
async fn rows(
    db: &Db,
    filter: &Filter,
    from: Option<i64>,
    count: usize,
) -> Result<Vec<Row>, StoreError> {
    let mut found = Vec::new();
    // In pages, by the end and the id of the last row: a statement has bounded work.
    let mut after: Option<(Timestamp, Uuid)> = None;
    while found.len() < count {
        let page = (count - found.len()).min(AT_ONCE);
        let rows = db.fetch(select(filter, from, after, page)).await?;
        let is_last = rows.len() < page;
        if let Some(last) = rows.last() {
            after = Some((last.time("ended_at")?, last.uuid("request_id")?));
        }
        found.extend(rows);
        if is_last {
            break;
        }
    }
    Ok(found)
}

fn select(
    filter: &Filter,
    from: Option<i64>,
    after: Option<(Timestamp, Uuid)>,
    count: usize,
) -> Statement {
    let mut conditions = Conditions::default();
    conditions.add("ended_at is not null");
    let since = filter.since.as_deref().and_then(Timestamp::from_rfc3339);
    let from = from.and_then(Timestamp::from_millis);
    for time in since.into_iter().chain(from) {
        conditions.add_with("ended_at >= ?", move |it| it.time(time));
    }
    if let Some((ended, id)) = after {
        conditions.add_with("(ended_at, request_id) < (?, ", move |it| it.time(ended));
        conditions.append_with("?)", move |it| it.uuid(id));
    }
    conditions.name("tool_name", filter.tool.as_deref());
    conditions.name("provider", filter.route.as_deref());
    if filter.route.is_some() {
        conditions.add_with("handler = ?", move |it| it.text(ROUTE));
    }
    conditions.equal("user_id", filter.sub.as_deref());
    conditions.equal("job_id", filter.job.as_deref());
    if let Some(text) = &filter.request_id {
        // The caller's own id finds its request, too.
        match Uuid::try_parse(text) {
            Ok(id) => {
                conditions.add_with("(request_id = ? or ", move |it| it.uuid(id));
                conditions.append_with("client_request_id = ?)", move |it| it.text(text));
            }
            Err(_) => conditions.add_with("client_request_id = ?", move |it| it.text(text)),
        }
    }
    match filter.status {
        None => {}
        Some(StatusFilter::Ok) => conditions.add("error_class is null"),
        Some(StatusFilter::Error) => conditions.add("error_class is not null"),
        Some(StatusFilter::Http(first, last)) => {
            conditions.add_with("status between ? and ", move |it| it.int(i64::from(first)));
            conditions.append_with("?", move |it| it.int(i64::from(last)));
        }
    }
    conditions.statement(count)
}

/// The conditions of a statement, with their values in order.
#[derive(Default)]
struct Conditions<'a> {
    text: String,
    values: Vec<Box<dyn FnOnce(Statement) -> Statement + 'a>>,
}

impl<'a> Conditions<'a> {
    fn add(&mut self, condition: &str) {
        let before = if self.text.is_empty() { "" } else { " and " };
        self.text.push_str(before);
        self.text.push_str(condition);
    }

    /// A condition with one value, at its `?`.
    fn add_with(&mut self, condition: &str, value: impl FnOnce(Statement) -> Statement + 'a) {
        self.values.push(Box::new(value));
        let number = format!("${}", self.values.len());
        self.add(&condition.replace('?', &number));
    }

    /// The rest of the last condition.
    fn append_with(&mut self, rest: &str, value: impl FnOnce(Statement) -> Statement + 'a) {
        self.values.push(Box::new(value));
        let number = format!("${}", self.values.len());
        self.text.push_str(&rest.replace('?', &number));
    }

    fn equal(&mut self, column: &str, wanted: Option<&'a str>) {
        if let Some(wanted) = wanted {
            self.add_with(&format!("{column} = ?"), move |it| it.text(wanted));
        }
    }

    /// The whole name, or its beginning with a `*` at the end. No `like`: it has characters of its
    /// own, and ignores case in SQLite.
    fn name(&mut self, column: &str, pattern: Option<&'a str>) {
        match pattern.map(|pattern| (pattern, pattern.strip_suffix('*'))) {
            None => {}
            Some((_, Some(prefix))) => {
                let length = prefix.chars().count() as i64;
                self.add_with(&format!("substr({column}, 1, cast(? as integer)) = "), {
                    move |it| it.int(length)
                });
                self.append_with("?", move |it| it.text(prefix));
            }
            Some((whole, None)) => self.equal(column, Some(whole)),
        }
    }

    fn statement(self, count: usize) -> Statement {
        let text = format!(
            "select * from ati_call_log where {} order by ended_at desc, request_id desc \
             limit {count}",
            self.text
        );
        let statement = Statement::composed(text);
        self.values
            .into_iter()
            .fold(statement, |statement, value| value(statement))
    }
}

/// The members that an entry in a file has come first, in the same order.
fn entry(row: &Row) -> Result<Value, StoreError> {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            entry.insert(name.to_owned(), value);
        }
    };
    let text = |column: &str| -> Result<Option<Value>, StoreError> {
        Ok(row.text_or_null(column)?.map(Value::from))
    };
    let int = |column: &str| -> Result<Option<Value>, StoreError> {
        Ok(row.int_or_null(column)?.map(Value::from))
    };
    let args = row.json("request_args")?;
    let is_route = row.text_or_null("handler")?.as_deref() == Some(ROUTE);
    put("ts", Some(timestamp(row.time("ended_at")?).into()));
    if is_route {
        put("route", text("provider")?);
        put("method", args.as_ref().map(|args| args["method"].clone()));
        put("path", text("endpoint")?);
    } else {
        put(
            "tool",
            Some(text("tool_name")?.unwrap_or_else(|| "".into())),
        );
        put("args", Some(args.unwrap_or_else(|| json!({}))));
    }
    let is_ok = row.text_or_null("error_class")?.is_none();
    put("status", Some(if is_ok { "ok" } else { "error" }.into()));
    put("http_status", int("status")?);
    put(
        "duration_ms",
        Some(int("latency_ms")?.unwrap_or_else(|| 0.into())),
    );
    let subject = text("user_id")?;
    put(
        "agent_sub",
        if is_route {
            subject
        } else {
            Some(subject.unwrap_or_else(|| "".into()))
        },
    );
    put("job_id", text("job_id")?);
    put("sandbox_id", text("sandbox_id")?);
    put(
        "request_id",
        Some(row.uuid("request_id")?.to_string().into()),
    );
    let message = text("error_message")?;
    let class = text("error_class")?;
    put("error", message.or_else(|| class.clone()));
    put("error_class", class);
    if !is_route {
        put("endpoint", text("endpoint")?);
        put("provider", text("provider")?);
        put("handler", text("handler")?);
    }
    put("upstream_status", int("upstream_status")?);
    put("response_size", int("response_size")?);
    put("customer_id", text("customer_id")?);
    put("client_request_id", text("client_request_id")?);
    put("session_id", text("session_id")?);
    put("token_hash", text("token_hash")?);
    put(
        "requester_ip",
        row.ip("requester_ip")?.map(|ip| ip.to_string().into()),
    );
    put("user_agent", text("user_agent")?);
    Ok(Value::Object(entry))
}

fn timestamp(time: Timestamp) -> String {
    let millis = u64::try_from(time.millis()).unwrap_or_default();
    audit::timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}
