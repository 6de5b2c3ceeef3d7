//! An older or a smaller VPP: the real one, behind a relay that changes its table of messages.

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use vpp_config::messages::Request;
use vpp_config::messages::attach::{CreateVhostUserIfV2, SwInterfaceVhostUserDump};
use vpp_config::messages::memclnt::{ControlPing, SockclntCreateReply};
use vpp_config::messages::vlib::ShowVersion;
use vpp_config::wire::{decode, encode};
use vpp_config::{CallError, Client, ConnectError, Needs, Options};

use crate::instance::{Vpp, start};
use crate::record::read_frame;

/// Connects to `vpp` as it would be if `change` had made its table of messages: given a name with
/// its CRC, it gives the one that is there instead, or none.
async fn connect(
    vpp: &Vpp,
    change: impl Fn(&str) -> Option<String>,
    needs: Needs,
) -> Result<Client, ConnectError> {
    // It has begun to listen when it has answered.
    drop(vpp.client().await);
    let path = vpp.path("between");
    let _before = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let server = vpp.startup.api_socket();
    let relay = async {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = UnixStream::connect(server).await.unwrap();
        let hello = read_frame(&mut client).await;
        server.write_all(&hello).await.unwrap();
        let greeting = changed(&read_frame(&mut server).await, change);
        client.write_all(&greeting).await.unwrap();
        tokio::spawn(async move {
            // It ends with either side.
            let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    };
    let (connected, ()) = tokio::join!(Client::connect(&path, Options::default(), needs), relay);
    connected
}

fn changed(frame: &[u8], change: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let mut greeting: SockclntCreateReply = decode(&frame[18..]).unwrap();
    greeting.message_table.retain_mut(|entry| {
        let Some(name) = change(&entry.name.to_str()) else {
            return false;
        };
        entry.name = name.as_str().try_into().unwrap();
        true
    });
    let mut message = frame[16..18].to_vec();
    message.append(&mut encode(&greeting).unwrap());
    let mut frame = vec![0; 16];
    frame[8..12].copy_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.append(&mut message);
    frame
}

fn without_vhost_user(name: &str) -> Option<String> {
    (!name.contains("vhost_user")).then(|| name.to_owned())
}

fn with_another_vhost_user(name: &str) -> Option<String> {
    let other = name
        .strip_prefix("create_vhost_user_if_v2_")
        .filter(|crc| !crc.starts_with("reply"))
        .map(|_crc| "create_vhost_user_if_v2_0badcafe".to_owned());
    other.or_else(|| Some(name.to_owned()))
}

fn id<R: Request>() -> String {
    R::ID.to_string()
}

#[tokio::test]
async fn a_missing_plugin_is_named_by_its_messages_when_it_is_needed() {
    let Some(vpp) = start() else { return };
    let needs = || Needs::new().require::<CreateVhostUserIfV2>();
    let refused = connect(&vpp, without_vhost_user, needs())
        .await
        .unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, ConnectError::Missing { .. }), "{said}");
    assert!(said.contains(&id::<CreateVhostUserIfV2>()), "{said}");
    assert!(said.contains("not offered under any definition"), "{said}");
    // The control: nothing changed.
    let whole = connect(&vpp, |name| Some(name.to_owned()), needs()).await;
    assert!(whole.unwrap().has::<CreateVhostUserIfV2>());
}

#[tokio::test]
async fn a_missing_plugin_costs_what_needs_it_and_nothing_else() {
    let Some(vpp) = start() else { return };
    let client = connect(&vpp, without_vhost_user, Needs::new())
        .await
        .unwrap();
    assert!(!client.has::<CreateVhostUserIfV2>());
    let refused = client.call(&CreateVhostUserIfV2::default()).await;
    let Err(CallError::NotOffered { id, .. }) = refused else {
        panic!("{refused:?}")
    };
    // The request, or what answers it.
    assert!(
        id.to_string().starts_with("create_vhost_user_if_v2_"),
        "{id}"
    );
    let refused = client.dump(&SwInterfaceVhostUserDump::default()).await;
    assert!(matches!(refused, Err(CallError::NotOffered { .. })));
    assert!(client.has::<ShowVersion>());
    client.call(&ShowVersion {}).await.unwrap();
    client.call(&ControlPing {}).await.unwrap();
}

#[tokio::test]
async fn another_definition_is_told_from_a_missing_message() {
    let Some(vpp) = start() else { return };
    let needs = Needs::new().require::<CreateVhostUserIfV2>();
    let refused = connect(&vpp, with_another_vhost_user, needs)
        .await
        .unwrap_err();
    let said = refused.to_string();
    assert!(said.contains(&id::<CreateVhostUserIfV2>()), "{said}");
    assert!(said.contains("another definition: 0badcafe"), "{said}");
    let client = connect(&vpp, with_another_vhost_user, Needs::new())
        .await
        .unwrap();
    assert!(!client.has::<CreateVhostUserIfV2>());
    client.call(&ShowVersion {}).await.unwrap();
}
