//! The tables, in the order in which versions of ati have made them. A migration that was released
//! is never changed: a change is a new one. Each makes only what is missing.

use crate::store::db::Engine;

pub struct Migration {
    pub version: i64,
    pub name: &'static str,
    pub steps: &'static [Step],
}

pub enum Step {
    Both(&'static str),
    /// Columns of tables that an existing deployment has; a new one has them from the start.
    Postgres(&'static str),
}

impl Step {
    pub fn text(&self, engine: Engine) -> Option<&'static str> {
        match self {
            Step::Both(text) => Some(text),
            Step::Postgres(text) => (engine == Engine::Postgres).then_some(text),
        }
    }
}

/// Every table but `ati_schema`, which has the versions.
pub const TABLES: &[&str] = &[
    "ati_keys",
    "ati_deleted_keys",
    "ati_audit_log",
    "ati_call_log",
    "ati_credentials",
    "ati_credential_changes",
    "ati_rate_reservations",
    "ati_confirmations",
];

pub const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "keys, audit log, call log, credentials, limits, confirmations",
    steps: &[
        Step::Both(
            "create table if not exists ati_keys (
                token_hash text primary key,
                key_alias text not null,
                user_id text not null,
                blocked {bool} not null default {false},
                expires_at {time},
                tools {texts} not null default {no_texts},
                providers {texts} not null default {no_texts},
                categories {texts} not null default {no_texts},
                skills {texts} not null default {no_texts},
                rate {json},
                customer_id text,
                request_count {int} not null default 0,
                error_count {int} not null default 0,
                last_used_at {time},
                metadata {json},
                created_at {time} not null,
                created_by text,
                unique (user_id, key_alias)
            )",
        ),
        Step::Postgres("alter table ati_keys add column if not exists rate jsonb"),
        Step::Postgres("alter table ati_keys add column if not exists customer_id text"),
        Step::Both("create index if not exists ati_keys_of_user on ati_keys (user_id, created_at)"),
        Step::Both(
            "create table if not exists ati_deleted_keys (
                token_hash text primary key,
                snapshot {json} not null,
                deleted_at {time} not null,
                deleted_by text
            )",
        ),
        Step::Both(
            "create table if not exists ati_audit_log (
                id {counted},
                happened_at {time} not null,
                actor text not null,
                action text not null,
                target_table text,
                target_id text,
                before_value {json},
                after_value {json}
            )",
        ),
        Step::Both(
            "create index if not exists ati_audit_log_by_time on ati_audit_log (happened_at)",
        ),
        Step::Both(
            "create table if not exists ati_call_log (
                request_id {uuid} primary key,
                started_at {time} not null,
                ended_at {time},
                latency_ms {int},
                token_hash text,
                user_id text,
                session_id text,
                endpoint text not null,
                tool_name text,
                provider text,
                handler text,
                status {int},
                upstream_status {int},
                error_class text,
                error_message text,
                request_args {json},
                response_size {int},
                requester_ip {ip},
                user_agent text,
                job_id text,
                sandbox_id text,
                customer_id text,
                client_request_id text
            )",
        ),
        Step::Postgres("alter table ati_call_log add column if not exists job_id text"),
        Step::Postgres("alter table ati_call_log add column if not exists sandbox_id text"),
        Step::Postgres("alter table ati_call_log add column if not exists customer_id text"),
        Step::Postgres("alter table ati_call_log add column if not exists client_request_id text"),
        Step::Both("create index if not exists ati_call_log_by_time on ati_call_log (ended_at)"),
        Step::Both(
            "create index if not exists ati_call_log_of_user
             on ati_call_log (user_id, started_at)",
        ),
        Step::Both(
            "create index if not exists ati_call_log_of_job on ati_call_log (job_id, started_at)",
        ),
        Step::Both(
            "create table if not exists ati_credentials (
                customer_id text,
                name text not null,
                key_id text not null,
                nonce {bytes} not null,
                ciphertext {bytes} not null,
                wrapped_key {bytes} not null,
                created_at {time} not null,
                updated_at {time} not null,
                check (customer_id <> '')
            )",
        ),
        // A shared credential has no customer. Nulls are never equal: an empty text stands for it.
        Step::Both(
            "create unique index if not exists ati_credentials_of_customer
             on ati_credentials (coalesce(customer_id, ''), name)",
        ),
        // One row. Edges look at its number, and read the credentials when it is another one.
        Step::Both(
            "create table if not exists ati_credential_changes (
                id {int} primary key check (id = 1),
                changes {int} not null
            )",
        ),
        Step::Both(
            "insert into ati_credential_changes (id, changes) values (1, 0)
             on conflict (id) do nothing",
        ),
        Step::Both(
            "create table if not exists ati_rate_reservations (
                subject text not null,
                pattern text not null,
                edge text not null,
                window_start {time} not null,
                reserved {int} not null,
                used {int} not null,
                updated_at {time} not null,
                keep_until {time} not null,
                primary key (subject, pattern, window_start, edge)
            )",
        ),
        Step::Both(
            "create table if not exists ati_confirmations (
                token_hash text primary key,
                binding text not null,
                expires_at {time} not null
            )",
        ),
    ],
}];
