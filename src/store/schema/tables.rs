//! The tables and their columns. A table is made out of these, and what is found in a database is
//! compared with them.

pub struct Table {
    pub name: &'static str,
    /// The name and the definition of each, with the words of `dialect` in braces.
    pub columns: &'static [(&'static str, &'static str)],
    /// Constraints over several columns.
    pub constraints: &'static [&'static str],
    /// What a proxy's user has to be allowed to do. Rows of audits are only added.
    pub needs: &'static [&'static str],
}

const EVERYTHING: &[&str] = &["select", "insert", "update", "delete"];

pub const KEYS: Table = Table {
    name: "ati_keys",
    columns: &[
        ("token_hash", "text primary key"),
        ("key_alias", "text not null"),
        ("user_id", "text not null"),
        ("blocked", "{bool} not null default {false}"),
        ("expires_at", "{time}"),
        ("tools", "{texts} not null default {no_texts}"),
        ("providers", "{texts} not null default {no_texts}"),
        ("categories", "{texts} not null default {no_texts}"),
        ("skills", "{texts} not null default {no_texts}"),
        ("rate", "{json}"),
        ("customer_id", "text"),
        ("request_count", "{int} not null default 0"),
        ("error_count", "{int} not null default 0"),
        ("last_used_at", "{time}"),
        ("metadata", "{json}"),
        ("created_at", "{time} not null"),
        ("created_by", "text"),
    ],
    constraints: &["unique (user_id, key_alias)"],
    needs: EVERYTHING,
};

pub const DELETED_KEYS: Table = Table {
    name: "ati_deleted_keys",
    columns: &[
        ("token_hash", "text primary key"),
        ("snapshot", "{json} not null"),
        ("deleted_at", "{time} not null"),
        ("deleted_by", "text"),
    ],
    constraints: &[],
    needs: &["insert"],
};

pub const AUDIT_LOG: Table = Table {
    name: "ati_audit_log",
    columns: &[
        ("id", "{counted}"),
        ("happened_at", "{time} not null"),
        ("actor", "text not null"),
        ("action", "text not null"),
        ("target_table", "text"),
        ("target_id", "text"),
        ("before_value", "{json}"),
        ("after_value", "{json}"),
    ],
    constraints: &[],
    needs: &["insert"],
};

pub const CALL_LOG: Table = Table {
    name: "ati_call_log",
    columns: &[
        ("request_id", "{uuid} primary key"),
        ("started_at", "{time} not null"),
        ("ended_at", "{time}"),
        ("latency_ms", "{int}"),
        ("token_hash", "text"),
        ("user_id", "text"),
        ("session_id", "text"),
        ("endpoint", "text not null"),
        ("tool_name", "text"),
        ("provider", "text"),
        ("handler", "text"),
        ("status", "{int}"),
        ("upstream_status", "{int}"),
        ("error_class", "text"),
        ("error_message", "text"),
        ("request_args", "{json}"),
        ("response_size", "{int}"),
        ("requester_ip", "{ip}"),
        ("user_agent", "text"),
        ("job_id", "text"),
        ("sandbox_id", "text"),
        ("customer_id", "text"),
        ("client_request_id", "text"),
    ],
    constraints: &[],
    needs: &["select", "insert", "delete"],
};

pub const CREDENTIALS: Table = Table {
    name: "ati_credentials",
    columns: &[
        ("customer_id", "text"),
        ("name", "text not null"),
        ("key_id", "text not null"),
        ("nonce", "{bytes} not null"),
        ("ciphertext", "{bytes} not null"),
        ("wrapped_key", "{bytes} not null"),
        ("created_at", "{time} not null"),
        ("updated_at", "{time} not null"),
    ],
    constraints: &["check (customer_id <> '')"],
    // `ati credential` writes them, perhaps as another user.
    needs: &["select"],
};

/// One row. Edges look at its number, and read the credentials when it is another one.
pub const CREDENTIAL_CHANGES: Table = Table {
    name: "ati_credential_changes",
    columns: &[
        ("id", "{int} primary key check (id = 1)"),
        ("changes", "{int} not null"),
    ],
    constraints: &[],
    needs: &["select"],
};

pub const RATE_RESERVATIONS: Table = Table {
    name: "ati_rate_reservations",
    columns: &[
        ("subject", "text not null"),
        ("pattern", "text not null"),
        ("edge", "text not null"),
        ("window_start", "{time} not null"),
        ("reserved", "{int} not null"),
        ("used", "{int} not null"),
        ("updated_at", "{time} not null"),
        ("keep_until", "{time} not null"),
    ],
    constraints: &["primary key (subject, pattern, window_start, edge)"],
    needs: EVERYTHING,
};

pub const CONFIRMATIONS: Table = Table {
    name: "ati_confirmations",
    columns: &[
        ("token_hash", "text primary key"),
        ("binding", "text not null"),
        ("expires_at", "{time} not null"),
    ],
    constraints: &[],
    needs: &["select", "insert", "delete"],
};

/// Every table but `ati_schema`, which has the versions.
pub const TABLES: &[&Table] = &[
    &KEYS,
    &DELETED_KEYS,
    &AUDIT_LOG,
    &CALL_LOG,
    &CREDENTIALS,
    &CREDENTIAL_CHANGES,
    &RATE_RESERVATIONS,
    &CONFIRMATIONS,
];

impl Table {
    pub fn creation(&self) -> String {
        let columns = self.columns.iter();
        let columns = columns.map(|(name, definition)| format!("{name} {definition}"));
        let constraints = self.constraints.iter().map(|text| (*text).to_owned());
        let parts: Vec<String> = columns.chain(constraints).collect();
        let (name, parts) = (self.name, parts.join(", "));
        format!("create table if not exists {name} ({parts})")
    }

    pub fn addition(&self, column: &str, definition: &str) -> String {
        format!("alter table {} add column {column} {definition}", self.name)
    }
}
