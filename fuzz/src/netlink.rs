//! Replies of nfnetlink.

use causeway_dataplane::kernel::nft::Set;
use causeway_dataplane::kernel::nft::message::{
    Reply, decode_elements, decode_reply, decode_set_fits, decode_table_comment,
};
use causeway_dataplane::kernel::nft::wire::Messages;

/// Whatever arrives is read to its end or refused.
pub fn netlink_reply(data: &[u8]) {
    let mut seen = 0;
    for message in Messages::new(data) {
        seen += 1;
        // A message has a header of 16 bytes, so that there cannot be more.
        assert!(seen <= data.len() / 16 + 1);
        let Ok(message) = message else { return };
        assert!(message.payload.len() <= data.len());
        let Ok(reply) = decode_reply(&message) else {
            continue;
        };
        if let Reply::Data { payload, .. } = reply {
            let _comment = decode_table_comment(payload);
            if let Ok(elements) = decode_elements(payload) {
                assert!(elements.len() <= payload.len() / 4);
            }
            for set in Set::ALL {
                let _fits = decode_set_fits(payload, *set);
            }
        }
    }
}
