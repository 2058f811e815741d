//! Other words for the same thing, as agents and APIs use them.

/// Each line: words that stand for each other.
const SAME: &[&[&str]] = &[
    // What is done.
    &["create", "add", "new", "make", "insert", "post"],
    &["delete", "remove", "destroy", "erase"],
    &["get", "retrieve", "fetch", "read", "show", "view"],
    &["list", "all", "show", "enumerate"],
    &["update", "edit", "modify", "change", "patch", "put", "set"],
    &["search", "find", "query", "lookup"],
    &["send", "post"],
    &["start", "launch", "begin"],
    &["stop", "end", "terminate"],
    &["copy", "duplicate", "clone"],
    &["run", "execute", "trigger"],
    &["invite", "add"],
    // What it is done to.
    &["auth", "authentication", "login"],
    &["bill", "billing", "invoice"],
    &["chat", "conversation", "message"],
    &["config", "configuration", "settings"],
    &["db", "database"],
    &["details", "info", "information"],
    &["doc", "document"],
    &["email", "mail"],
    &["env", "environment"],
    &["folder", "directory"],
    &["image", "photo", "picture"],
    &["issue", "ticket"],
    &["k8s", "kubernetes"],
    &["member", "user", "person", "people"],
    &["org", "organization", "organisation"],
    &["pr", "pull", "pullrequest"],
    &["price", "quote", "cost"],
    &["repo", "repository"],
    &["song", "track"],
    &["stock", "share"],
    &["vm", "server", "instance", "machine"],
];

/// The other words for a word, all in lower case and not stemmed.
pub fn of(word: &str) -> impl Iterator<Item = &'static str> {
    let groups = SAME.iter().filter(move |group| group.contains(&word));
    groups.flat_map(|group| group.iter().copied())
}
