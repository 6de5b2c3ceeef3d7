use proptest::prelude::*;

use super::super::wire::Messages;
use super::*;

/// The elements of a batch, read back as if they had been dumped.
fn read_back(bytes: &[u8]) -> Vec<(u16, Vec<RawElement>)> {
    Messages::new(bytes)
        .map(Result::unwrap)
        .filter(|message| message.kind >> 8 == NFTABLES)
        .map(|message| {
            let elements = decode_elements(message.payload).unwrap();
            (message.kind, elements)
        })
        .collect()
}

fn entry() -> impl Strategy<Value = Entry> {
    let set = prop::sample::select(Set::ALL);
    (set, prop::collection::vec(any::<u8>(), 64), any::<u32>()).prop_map(|(set, bytes, mark)| {
        let length = set.key_length();
        let (mut first, mut last) = (bytes[..length].to_vec(), bytes[length..][..length].to_vec());
        if first > last {
            std::mem::swap(&mut first, &mut last);
        }
        if !set.interval() {
            last.clone_from(&first);
        }
        Entry {
            set,
            first,
            last,
            mark: set.map().then_some(mark),
        }
    })
}

proptest! {
    #[test]
    fn entries_round_trip(entry in entry()) {
        let batch = encode_batch(&[(Action::Add, Family::Inet, &entry)]);
        let [(kind, raw)] = &read_back(&batch)[..] else { panic!() };
        prop_assert_eq!(*kind, NEWSETELEM);
        prop_assert_eq!(entries(entry.set, raw.clone()).unwrap(), vec![entry]);
    }

    #[test]
    fn decoders_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        drop(decode_table_comment(&bytes));
        for &set in Set::ALL {
            let _ = decode_set_fits(&bytes, set);
            if let Ok(raw) = decode_elements(&bytes) {
                drop(entries(set, raw));
            }
        }
        for message in Messages::new(&bytes).flatten() {
            let _ = decode_reply(&message);
        }
    }

    /// A message that is right but for some bytes.
    #[test]
    fn decoders_take_damaged_messages(
        entry in entry(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut batch = encode_batch(&[(Action::Add, Family::Inet, &entry)]);
        for (at, value) in damage {
            let at = at.index(batch.len());
            batch[at] = value;
        }
        for message in Messages::new(&batch).flatten() {
            if let Ok(raw) = decode_elements(message.payload) {
                drop(entries(entry.set, raw));
            }
        }
    }
}

#[test]
fn neighbouring_intervals_stay_apart() {
    let make = |first: u128, last: u128| Entry {
        set: Set::Quarantine,
        first: first.to_be_bytes().to_vec(),
        last: last.to_be_bytes().to_vec(),
        mark: None,
    };
    let all = vec![make(0, 9), make(10, 19), make(30, u128::MAX)];
    let changes: Vec<_> = all
        .iter()
        .map(|entry| (Action::Add, Family::Inet, entry))
        .collect();
    let mut raw: Vec<RawElement> = read_back(&encode_batch(&changes))
        .into_iter()
        .flat_map(|(_, elements)| elements)
        .collect();
    assert_eq!(raw.len(), 5);
    // The kernel dumps from the top.
    raw.reverse();
    // And `nft` leaves a mark in front of the first.
    raw.push(RawElement {
        key: vec![0; 16],
        interval_end: true,
        ..RawElement::default()
    });
    assert_eq!(entries(Set::Quarantine, raw).unwrap(), all);
}

#[test]
fn a_batch_is_framed_and_asks_for_one_acknowledgement() {
    let entry = drop_entry(5, 7);
    let changes = vec![(Action::Delete, Family::Arp, &entry); 3];
    let batch = encode_batch(&changes);
    let messages: Vec<_> = Messages::new(&batch).map(Result::unwrap).collect();
    let seen: Vec<_> = messages
        .iter()
        .map(|message| {
            (
                message.kind,
                message.flags & NLM_F_ACK != 0,
                message.sequence,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (BATCH_BEGIN, false, 0),
            (DELSETELEM, false, 1),
            (DELSETELEM, false, 2),
            (DELSETELEM, true, 3),
            (BATCH_END, false, 4),
        ]
    );
}

#[test]
fn an_error_names_its_request() {
    let mut writer = Writer::default();
    writer.message((NLMSG_ERROR, 0, 7), (0, 0), |_| ());
    let mut bytes = writer.bytes().to_vec();
    bytes[16..20].copy_from_slice(&(-libc::EBUSY).to_ne_bytes());
    let message = Messages::new(&bytes).next().unwrap().unwrap();
    assert_eq!(
        decode_reply(&message).unwrap(),
        Reply::Status {
            sequence: 7,
            errno: libc::EBUSY
        }
    );
}
