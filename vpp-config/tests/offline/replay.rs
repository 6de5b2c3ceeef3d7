//! The exchange that was recorded from VPP 26.06, against the recording.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::exchange::exchange;
use crate::fake::FakeVpp;

const RECORDING: &str = include_str!("../recordings/26.06.txt");

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

#[tokio::test]
async fn the_recorded_exchange_is_had_again_byte_by_byte() {
    let fake = FakeVpp::new();
    let serve = async {
        let mut stream = fake.accept().await;
        for line in RECORDING.lines() {
            match line.split_once(' ').unwrap() {
                (">", hex) => {
                    let expected = bytes(hex);
                    let mut asked = vec![0; expected.len()];
                    stream.read_exact(&mut asked).await.unwrap();
                    assert_eq!(asked, expected);
                }
                ("<", hex) => stream.write_all(&bytes(hex)).await.unwrap(),
                _ => {}
            }
        }
        stream
    };
    let socket = fake.socket();
    let (said, _stream) = tokio::join!(exchange(&socket), serve);
    let said: Vec<_> = said.iter().map(ToString::to_string).collect();
    let expected: Vec<_> = RECORDING
        .lines()
        .filter_map(|line| line.strip_prefix("= "))
        .collect();
    assert_eq!(said, expected);
}
