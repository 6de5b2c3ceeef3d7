//! Says which VPP runs and which interfaces it has: `show_version [SOCKET]`.

use std::error::Error;

use vpp_config::messages::interface::SwInterfaceDump;
use vpp_config::messages::vlib::ShowVersion;
use vpp_config::{Client, Needs, Options};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "this is what it is for")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os()
        .nth(1)
        .unwrap_or_else(|| "/run/vpp/api.sock".into());
    let needs = Needs::new()
        .require::<ShowVersion>()
        .require::<SwInterfaceDump>();
    let options = Options {
        name: "show_version".try_into()?,
        ..Options::default()
    };
    let client = Client::connect(socket, options, needs).await?;

    let version = client.call(&ShowVersion {}).await?;
    println!(
        "{} {}, built on {}",
        version.program, version.version, version.build_date
    );
    for interface in client.dump(&SwInterfaceDump::default()).await? {
        println!(
            "{:>4}  {:<20} {:?}",
            interface.sw_if_index, interface.interface_name, interface.flags
        );
    }
    Ok(())
}
