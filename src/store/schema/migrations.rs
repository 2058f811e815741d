//! What versions of ati have made, in their order. A migration that was released is never changed:
//! a change is a new one. Each makes only what is missing.

use super::tables::{
    AUDIT_LOG, CALL_LOG, CONFIRMATIONS, CREDENTIAL_CHANGES, CREDENTIALS, DELETED_KEYS, KEYS,
    RATE_RESERVATIONS, Table,
};

pub struct Migration {
    pub version: i64,
    pub name: &'static str,
    pub steps: &'static [Step],
}

pub enum Step {
    /// Made, or given the columns that it lacks.
    Table(&'static Table),
    Both(&'static str),
    /// What tables of an existing deployment have otherwise.
    Postgres(&'static str),
}

/// A status was a word there. The word of a call that failed becomes its class, if it has none.
const STATUS_AS_NUMBER: &str = "do $$ begin
    if (select atttypid from pg_catalog.pg_attribute
        where attrelid = 'ati_call_log'::regclass and attname = 'status') = 'text'::regtype
    then
        drop index if exists idx_call_log_failures;
        alter table ati_call_log
            alter column status drop not null,
            alter column status type bigint using (
                case when status = 'success' then 200
                     when status ~ '^[0-9]{1,9}$' then status::bigint end),
            alter column error_class type text using (
                coalesce(error_class,
                         case when status !~ '^([0-9]{1,9}|success)$' then status end));
    end if;
end $$";

pub const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "keys, audit log, call log, credentials, limits, confirmations",
    steps: &[
        Step::Table(&KEYS),
        Step::Postgres("alter table ati_keys alter column metadata drop not null"),
        // Customers are no rows of a table here.
        Step::Postgres("alter table ati_keys drop constraint if exists ati_keys_customer_id_fkey"),
        Step::Both("create index if not exists ati_keys_of_user on ati_keys (user_id, created_at)"),
        Step::Table(&DELETED_KEYS),
        Step::Table(&AUDIT_LOG),
        Step::Postgres(
            "alter table ati_audit_log
             alter column target_table drop not null, alter column target_id drop not null",
        ),
        Step::Both(
            "create index if not exists ati_audit_log_by_time on ati_audit_log (happened_at)",
        ),
        Step::Table(&CALL_LOG),
        Step::Postgres(STATUS_AS_NUMBER),
        Step::Postgres(
            "alter table ati_call_log
             alter column ended_at drop not null, alter column latency_ms drop not null,
             alter column response_size type bigint, alter column upstream_status type bigint",
        ),
        Step::Both("create index if not exists ati_call_log_by_time on ati_call_log (ended_at)"),
        Step::Both(
            "create index if not exists ati_call_log_of_user
             on ati_call_log (user_id, started_at)",
        ),
        Step::Both(
            "create index if not exists ati_call_log_of_job on ati_call_log (job_id, started_at)",
        ),
        Step::Table(&CREDENTIALS),
        // A shared credential has no customer. Nulls are never equal: an empty text stands for it.
        Step::Both(
            "create unique index if not exists ati_credentials_of_customer
             on ati_credentials (coalesce(customer_id, ''), name)",
        ),
        Step::Table(&CREDENTIAL_CHANGES),
        Step::Both(
            "insert into ati_credential_changes (id, changes) values (1, 0)
             on conflict (id) do nothing",
        ),
        Step::Table(&RATE_RESERVATIONS),
        Step::Table(&CONFIRMATIONS),
    ],
}];
