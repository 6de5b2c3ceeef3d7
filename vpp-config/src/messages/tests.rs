//! Every declared message survives being written and read.

use std::collections::BTreeMap;

use proptest::prelude::{any, proptest};

use super::declared;

#[test]
fn each_name_is_declared_with_one_crc() {
    let mut crcs = BTreeMap::new();
    for declared in declared() {
        let known = crcs.entry(declared.id.name).or_insert(declared.id.crc);
        assert_eq!(*known, declared.id.crc, "{}", declared.id);
    }
}

proptest! {
    #[test]
    fn a_message_that_is_read_is_written_with_the_same_bytes(seed in any::<u64>()) {
        for declared in declared() {
            let bytes = (declared.sample)(seed);
            let copied = (declared.copy)(&bytes).unwrap();
            assert_eq!(copied.bytes, bytes, "{}", declared.id);
        }
    }

    #[test]
    fn a_message_that_ends_early_is_refused(seed in any::<u64>(), cut in 1usize..64) {
        for declared in declared() {
            let bytes = (declared.sample)(seed);
            if let Some(end) = bytes.len().checked_sub(cut) {
                assert!((declared.copy)(&bytes[..end]).is_err(), "{}", declared.id);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        for declared in declared() {
            if let Ok(copied) = (declared.copy)(&bytes) {
                let again = (declared.copy)(&copied.bytes).unwrap();
                assert_eq!(again, copied, "{}", declared.id);
            }
        }
    }
}
