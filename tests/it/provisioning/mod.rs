//! From a signing key to a sandbox that calls tools: `ati sandbox`, `ati token rotate-file`,
//! `ati tool stubs` and `ati prompt`.

mod rotate;
mod sandbox;
mod stubs;

use std::path::Path;
use std::process::Command;

use crate::support::ati::{Proxy, Setup, command, tool};
use crate::support::upstream::Upstream;

/// A hex secret for tokens, which the tests plant in environments.
const SECRET: &str = "5f4dcc3b5aa765d61d8327deb882cf995f4dcc3b5aa765d61d8327deb882cf99";

/// A proxy with two tools, whose tokens are signed with [`SECRET`].
fn proxy(api: &Upstream) -> Proxy {
    let tools = tool("shop:find", "description = 'Find things'") + &tool("shop:buy", "");
    Setup::new()
        .tools("shop", &api.url(), "", &tools)
        .env("ATI_JWT_SECRET", SECRET)
        .start()
}

/// A command of the orchestrator, which has the key.
fn orchestrator(dir: &Path) -> Command {
    let mut command = command(dir);
    command.env("ATI_JWT_SECRET", SECRET);
    command
}
