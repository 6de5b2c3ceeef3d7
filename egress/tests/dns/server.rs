//! A small authoritative server on loopback, UDP and TCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

/// The largest packet that the server sends over UDP.
const LIMIT: usize = 1232;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, RecordType)>>>,
    _tasks: JoinSet<()>,
}

/// What the server does with a question.
pub(crate) enum Act {
    Answer(Message),
    /// Packets before the answer, as from somebody who guesses.
    Forge(Vec<Message>, Message),
    Ignore,
}

type Zone = fn(&Query, &Message) -> Act;

impl Server {
    pub(crate) async fn start(zone: Zone) -> Self {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = udp.local_addr().unwrap();
        let tcp = TcpListener::bind(address).await.unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(udp, zone, Arc::clone(&asked)));
        tasks.spawn(serve_tcp(tcp, zone));
        Self {
            address,
            asked,
            _tasks: tasks,
        }
    }

    /// Every question over UDP so far.
    pub(crate) fn asked(&self) -> Vec<(String, RecordType)> {
        self.asked.lock().unwrap().clone()
    }

    /// How often this name was asked for over UDP, with any type.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.asked()
            .iter()
            .filter(|(asked, _)| asked == name)
            .count()
    }
}

async fn serve_udp(socket: UdpSocket, zone: Zone, asked: Arc<Mutex<Vec<(String, RecordType)>>>) {
    let mut buffer = [0; 4096];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
        let query = Message::from_vec(&buffer[..length]).unwrap();
        let question = &query.queries[0];
        let key = (question.name().to_ascii(), question.query_type());
        asked.lock().unwrap().push(key);
        let packets = match zone(question, &query) {
            Act::Answer(answer) => vec![answer],
            Act::Forge(mut forged, answer) => {
                forged.push(answer);
                forged
            }
            Act::Ignore => Vec::new(),
        };
        for packet in packets {
            let whole = packet.to_vec().unwrap();
            let bytes = if whole.len() <= LIMIT {
                whole
            } else {
                packet.truncate().to_vec().unwrap()
            };
            socket.send_to(&bytes, peer).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, zone: Zone) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut buffer = vec![0; usize::from(length)];
        stream.read_exact(&mut buffer).await.unwrap();
        let query = Message::from_vec(&buffer).unwrap();
        if let Act::Answer(answer) = zone(&query.queries[0], &query) {
            let bytes = answer.to_vec().unwrap();
            stream
                .write_u16(u16::try_from(bytes.len()).unwrap())
                .await
                .unwrap();
            stream.write_all(&bytes).await.unwrap();
        }
    }
}

pub(crate) fn respond(query: &Message, code: ResponseCode) -> Message {
    let mut message = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
    message.metadata.response_code = code;
    message.add_query(query.queries[0].clone());
    message
}

fn add(message: &mut Message, name: &str, ttl: u32, data: RData) {
    let name = Name::from_ascii(name).unwrap();
    message.add_answer(Record::from_rdata(name, ttl, data));
}

/// The zone that most tests use.
pub(crate) fn example(question: &Query, query: &Message) -> Act {
    let name = question.name().to_lowercase().to_ascii();
    let mut message = respond(query, ResponseCode::NoError);
    let v4 = |n: u8| RData::A(A([198, 41, 0, n].into()));
    let v6 = |n: u16| RData::AAAA(AAAA([0x2a00, 0, 0, 0, 0, 0, 0, n].into()));
    let alias = |target: &str| RData::CNAME(CNAME(Name::from_ascii(target).unwrap()));
    match (name.as_str(), question.query_type()) {
        ("both.example.", RecordType::A) => add(&mut message, &name, 60, v4(1)),
        ("both.example.", RecordType::AAAA) => add(&mut message, &name, 60, v6(1)),
        ("v4.example.", RecordType::A) => add(&mut message, &name, 60, v4(4)),
        ("short.example.", RecordType::AAAA) => add(&mut message, &name, 0, v6(2)),
        ("private.example.", RecordType::A) => {
            add(&mut message, &name, 60, RData::A(A([10, 0, 0, 1].into())));
        }
        ("many.example.", RecordType::AAAA) => {
            (1..=200).for_each(|n| add(&mut message, &name, 60, v6(n)));
        }
        ("chain.example.", _) => add(&mut message, &name, 60, alias("middle.example.")),
        ("middle.example.", _) => add(&mut message, &name, 60, alias("both.example.")),
        ("circle.example.", _) => add(&mut message, &name, 60, alias("elcric.example.")),
        ("elcric.example.", _) => add(&mut message, &name, 60, alias("circle.example.")),
        ("half.example.", RecordType::A) => add(&mut message, &name, 60, v4(5)),
        ("half.example." | "broken.example.", _) => {
            return Act::Answer(respond(query, ResponseCode::ServFail));
        }
        ("silent.example.", _) => return Act::Ignore,
        ("forged.example.", RecordType::AAAA) => {
            let answer = {
                let mut message = message.clone();
                add(&mut message, &name, 60, v6(1));
                message
            };
            let mut wrong_id = respond(query, ResponseCode::NXDomain);
            wrong_id.metadata.id ^= 1;
            let mut wrong_name = respond(query, ResponseCode::NXDomain);
            wrong_name.queries[0].set_name(Name::from_ascii("other.example.").unwrap());
            let mut no_response = respond(query, ResponseCode::NXDomain);
            no_response.metadata.message_type = MessageType::Query;
            return Act::Forge(vec![wrong_id, wrong_name, no_response], answer);
        }
        ("missing.example.", _) => {
            message = respond(query, ResponseCode::NXDomain);
            let zone = Name::from_ascii("example.").unwrap();
            let soa = RData::SOA(SOA::new(zone.clone(), zone.clone(), 1, 2, 3, 4, 30));
            message.add_authority(Record::from_rdata(zone, 30, soa));
        }
        _ => {}
    }
    Act::Answer(message)
}
