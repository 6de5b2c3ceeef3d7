//! What VPP offers, compared with what is declared.

use vpp_config::messages::memclnt::{ApiVersionsGet, GetApiJson};
use vpp_config::messages::vlib::{CliInband, ShowVersion};
use vpp_config::messages::{MessageId, declared};

use crate::instance::start;

#[tokio::test]
async fn each_declared_message_is_offered_with_its_crc() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let connection = client.connection().unwrap();
    let table = connection.table();
    let mut absent = Vec::new();
    for declared in declared() {
        let MessageId { name, crc } = declared.id;
        let offered = table.crcs(name);
        if offered.is_empty() {
            absent.push(name);
        } else {
            assert!(
                offered.contains(&crc),
                "{name}: {crc:08x} is declared, {offered:08x?} is offered"
            );
        }
    }
    // What is not offered at all belongs to a plugin that is not installed, or came later.
    let explained = |name: &str| {
        let plugins = ["npt66", "mss_clamp", "tracedump", "urpf", "abf"];
        let missing = plugins.iter().any(|plugin| {
            let prefix = if *plugin == "tracedump" {
                "trace_"
            } else {
                plugin
            };
            name.starts_with(prefix) && !vpp.has_plugin(plugin)
        });
        missing || name.starts_with("feature_is_enabled")
    };
    absent.retain(|name| !explained(name));
    assert!(absent.is_empty(), "{absent:?} are not offered");
}

#[tokio::test]
async fn its_version_its_definitions_and_its_command_line_are_read() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let version = client.call(&ShowVersion {}).await.unwrap();
    assert_eq!(version.program, "vpe");
    // 26.06 answers with an empty list.
    client.call(&ApiVersionsGet {}).await.unwrap();
    let json = client.call(&GetApiJson {}).await.unwrap().json;
    assert!(json.as_bytes().len() > 100_000);
    let request = CliInband {
        cmd: "show version".into(),
    };
    let said = client.call(&request).await.unwrap().reply.to_string();
    assert!(said.contains(&*version.version.to_str()), "{said}");
}
