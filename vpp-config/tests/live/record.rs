//! Records the exchange that is replayed where there is no VPP.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use vpp_config::messages::declared;
use vpp_config::messages::memclnt::SockclntCreateReply;
use vpp_config::wire::{decode, encode};

use crate::exchange::exchange;
use crate::instance::start;

/// The exchange, and its recording: `>` from the client, `<` from VPP, `=` what was read.
#[tokio::test]
async fn the_exchange_works() {
    let Some(vpp) = start() else { return };
    drop(vpp.client().await);
    let listener = UnixListener::bind(vpp.path("between")).unwrap();
    let record = async {
        let (client, _) = listener.accept().await.unwrap();
        let server = UnixStream::connect(vpp.startup.api_socket()).await.unwrap();
        relay(client, server).await
    };
    let path = vpp.path("between");
    let (said, mut recording) = tokio::join!(exchange(&path), record);
    for value in said {
        writeln!(recording, "= {value}").unwrap();
    }
    // To write it anew, give its place.
    if let Some(path) = std::env::var_os("VPP_RECORDING") {
        fs::write(Path::new(&path), recording).unwrap();
    }
}

/// Passes bytes on and writes them down, until the client goes.
async fn relay(mut client: UnixStream, mut server: UnixStream) -> String {
    let mut recording = Vec::new();
    let hello = read_frame(&mut client).await;
    server.write_all(&hello).await.unwrap();
    recording.push(('>', hello));
    let greeting = only_declared(&read_frame(&mut server).await);
    client.write_all(&greeting).await.unwrap();
    recording.push(('<', greeting));
    let (mut from_client, mut from_server) = (vec![0; 65536], vec![0; 65536]);
    loop {
        let (side, bytes) = tokio::select! {
            count = client.read(&mut from_client) => ('>', &from_client[..count.unwrap()]),
            count = server.read(&mut from_server) => ('<', &from_server[..count.unwrap()]),
        };
        if bytes.is_empty() {
            break;
        }
        let to = if side == '>' {
            &mut server
        } else {
            &mut client
        };
        to.write_all(bytes).await.unwrap();
        match recording.last_mut() {
            Some((last, earlier)) if *last == side => earlier.extend_from_slice(bytes),
            _ => recording.push((side, bytes.to_vec())),
        }
    }
    let mut text = String::new();
    for (side, bytes) in recording {
        write!(text, "{side} ").unwrap();
        for byte in bytes {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

pub(crate) async fn read_frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut frame = vec![0; 16];
    stream.read_exact(&mut frame).await.unwrap();
    let len = u32::from_be_bytes(frame[8..12].try_into().unwrap());
    frame.resize(16 + usize::try_from(len).unwrap(), 0);
    stream.read_exact(&mut frame[16..]).await.unwrap();
    frame
}

/// The greeting with the messages that are declared here, and the one that comes in another's place.
fn only_declared(frame: &[u8]) -> Vec<u8> {
    let names: Vec<_> = declared().map(|message| message.id.to_string()).collect();
    let mut greeting: SockclntCreateReply = decode(&frame[18..]).unwrap();
    greeting.message_table.retain(|entry| {
        let name = entry.name.to_str();
        names.iter().any(|declared| *declared == name) || name.starts_with("policer_input_reply_")
    });
    let mut message = frame[16..18].to_vec();
    message.append(&mut encode(&greeting).unwrap());
    let mut frame = vec![0; 16];
    frame[8..12].copy_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.append(&mut message);
    frame
}
