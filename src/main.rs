use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = ati::process::run_hidden_command(std::env::args_os()) {
        return code.into();
    }
    if let Some(code) = ati::cli::introspect() {
        return code;
    }
    ati::cli::run(ati::cli::parse())
}
