//! Prints a start-up configuration: `startup_conf [SANDBOXES [RUNTIME_DIR [PLUGIN_PATH]]]`.

use std::error::Error;

use vpp_config::startup::Startup;

#[expect(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut startup = Startup::default();
    if let Some(sandboxes) = arguments.next() {
        startup.sandboxes = sandboxes.parse()?;
    }
    if let Some(folder) = arguments.next() {
        startup.runtime_dir = folder.into();
    }
    startup.plugin_path = arguments.next().map(Into::into);
    print!("{}", startup.render()?);
    Ok(())
}
