//! Reservations in PostgreSQL. A window is cut into slots. A reservation counts from the beginning
//! of its slot until its window is over, by the database's clock, so that the clocks of edges don't
//! matter.

use sha2::{Digest as _, Sha256};

use crate::auth::rate::{Rate, Unit};
use crate::store::{Db, Statement, StoreError, Timestamp, sql};

/// A longer name is counted by its digest: an index has room for short ones only.
const LONGEST_NAME: usize = 256;

/// Where calls are counted.
#[derive(Clone)]
pub struct Place {
    subject: String,
    pattern: String,
    edge: String,
    /// None before they are reserved.
    slot: Option<Timestamp>,
}

pub struct Wanted {
    pub place: Place,
    pub rate: Rate,
    pub batch: u32,
    /// How long the row is needed, in milliseconds.
    pub kept: u64,
}

pub enum Reserved {
    Calls {
        count: u32,
        place: Place,
    },
    /// The limit is reached.
    None {
        count: usize,
        /// Milliseconds until a slot leaves the window.
        wait: u64,
    },
}

impl Place {
    pub fn new(subject: &str, pattern: &str, edge: &str) -> Self {
        Place {
            subject: short(subject),
            pattern: short(pattern),
            edge: edge.to_owned(),
            slot: None,
        }
    }

    fn bind(&self, statement: Statement) -> Statement {
        statement.text(&*self.subject).text(&*self.pattern)
    }
}

fn short(name: &str) -> String {
    match name.len() > LONGEST_NAME || name.contains('\0') {
        true => format!("sha256:{}", hex::encode(Sha256::digest(name))),
        false => name.to_owned(),
    }
}

/// Milliseconds.
fn slot_of(unit: Unit) -> i64 {
    match unit {
        Unit::Second => 50,
        Unit::Minute | Unit::Hour | Unit::Day => unit.seconds() as i64 * 1000 / 60,
    }
}

pub async fn reserve(db: &Db, wanted: Wanted) -> Result<Reserved, StoreError> {
    let Wanted {
        mut place,
        rate,
        batch,
        kept,
    } = wanted;
    let (length, slot) = (rate.unit.seconds() as i64 * 1000, slot_of(rate.unit));
    let mut transaction = db.begin().await?;
    // Edges reserve one after the other, each with what the others have reserved before its eyes.
    let lock = "select pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2, 7202611180022))";
    transaction.execute(place.bind(sql(lock))).await?;
    let count = "select coalesce(sum(reserved), 0)::bigint as total, \
                 (extract(epoch from min(window_start)) * 1000)::bigint as oldest, \
                 (extract(epoch from clock_timestamp()) * 1000)::bigint as now \
                 from ati_rate_reservations \
                 where subject = $1 and pattern = $2 and reserved > 0 \
                 and window_start > clock_timestamp() - $3 * interval '1 millisecond'";
    let count = place.bind(sql(count)).int(length + slot);
    let rows = transaction.fetch(count).await?;
    let row = rows.first().ok_or(StoreError::Ended)?;
    let (total, now) = (row.int("total")?, row.int("now")?);
    let free = u32::try_from(i64::from(rate.limit) - total).unwrap_or(0);
    if free == 0 {
        let oldest = row.int_or_null("oldest")?.unwrap_or(now);
        let wait = u64::try_from(oldest + length + slot - now).unwrap_or(0);
        let count = usize::try_from(total).unwrap_or(0);
        return Ok(Reserved::None { count, wait });
    }
    let count = free.min(batch);
    let begin = Timestamp::from_millis(now - now.rem_euclid(slot));
    let kept = i64::try_from(kept).unwrap_or(length).max(length) + 2 * slot;
    let insert = "insert into ati_rate_reservations as held \
                  (subject, pattern, edge, window_start, reserved, used, updated_at, keep_until) \
                  values ($1, $2, $3, $4, $5, 0, clock_timestamp(), \
                  clock_timestamp() + $6 * interval '1 millisecond') \
                  on conflict (subject, pattern, window_start, edge) do update set \
                  used = held.reserved, reserved = held.reserved + excluded.reserved, \
                  updated_at = excluded.updated_at, \
                  keep_until = greatest(held.keep_until, excluded.keep_until)";
    let insert = place.bind(sql(insert));
    let insert = insert.text(&*place.edge).time(begin);
    transaction
        .execute(insert.int(i64::from(count)).int(kept))
        .await?;
    transaction.commit().await?;
    place.slot = begin;
    Ok(Reserved::Calls { count, place })
}

/// Calls that were reserved and not made no longer count.
pub async fn give_back(db: &Db, unused: Vec<(Place, u32)>) -> Result<(), StoreError> {
    let text = "update ati_rate_reservations set reserved = greatest(reserved - $5, 0), \
                used = greatest(reserved - $5, 0), updated_at = clock_timestamp() \
                where subject = $1 and pattern = $2 and edge = $3 and window_start = $4";
    for (place, count) in unused {
        let statement = place.bind(sql(text));
        let statement = statement.text(&*place.edge).time(place.slot);
        db.execute(statement.int(i64::from(count))).await?;
    }
    Ok(())
}

/// Removes rows that count for no limit any more.
pub async fn clean(db: &Db) -> Result<(), StoreError> {
    let text = "delete from ati_rate_reservations where ctid in ( \
                select ctid from ati_rate_reservations where keep_until < clock_timestamp() \
                limit 1000 for update skip locked)";
    while db.execute(sql(text)).await? == 1000 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_counted_by_their_digest() {
        assert_eq!(short("agent-7"), "agent-7");
        assert_eq!(short(&"x".repeat(1 << 20)).len(), 71);
        assert_ne!(short(&"x".repeat(300)), short(&"x".repeat(301)));
        assert!(!short("a\0b").contains('\0'));
    }

    #[test]
    fn slots_are_a_twentieth_of_a_window_or_less() {
        for unit in [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day] {
            assert!(slot_of(unit) * 20 <= unit.seconds() as i64 * 1000);
        }
    }
}
