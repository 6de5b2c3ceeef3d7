//! A name server of the test's own.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType, rdata};
use tokio::net::UdpSocket;

use super::world::UPSTREAM;

type Table = Arc<Mutex<HashMap<String, Vec<IpAddr>>>>;

pub(super) struct Names {
    pub(super) address: SocketAddr,
    table: Table,
}

impl Names {
    /// Starts one that knows these.
    pub(super) async fn serve(known: &[(&str, &[&str])]) -> Self {
        let socket = UdpSocket::bind((UPSTREAM, 0)).await.unwrap();
        let names = Self {
            address: socket.local_addr().unwrap(),
            table: Table::default(),
        };
        for (name, addresses) in known {
            names.set(name, addresses);
        }
        let table = Arc::clone(&names.table);
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                let reply = answer(&buffer[..length], &table);
                socket.send_to(&reply, peer).await.unwrap();
            }
        });
        names
    }

    /// Gives a name other addresses.
    pub(super) fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let mut table = self.table.lock().unwrap();
        table.insert(name.to_owned(), addresses);
    }
}

fn answer(query: &[u8], table: &Table) -> Vec<u8> {
    let query = Message::from_vec(query).unwrap();
    let question = query.queries[0].clone();
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    let name = question.name().to_ascii().trim_end_matches('.').to_owned();
    match table.lock().unwrap().get(&name) {
        None => reply.metadata.response_code = ResponseCode::NXDomain,
        Some(addresses) => {
            for address in addresses {
                let data = match (address, question.query_type()) {
                    (IpAddr::V4(a), RecordType::A) => RData::A(rdata::A(*a)),
                    (IpAddr::V6(a), RecordType::AAAA) => RData::AAAA(rdata::AAAA(*a)),
                    _ => continue,
                };
                reply.add_answer(Record::from_rdata(question.name().clone(), 1, data));
            }
        }
    }
    reply.add_query(question);
    reply.to_vec().unwrap()
}
