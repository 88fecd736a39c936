//! What is done with bytes that came from somewhere: decode them in every way the plane does. Whatever they are, that
//! must end, must not panic, and must not take memory beyond a small multiple of their length.

use bytes::{Bytes, BytesMut};
use roost_cluster::events::{
    BindingEvent, Envelope as EventEnvelope, KvAnswer, KvQuery, Load, SequenceEvent, decode_kv_events,
};
use roost_cluster::record::{
    CardRecord, Codec as RecordCodec, EventChannelRecord, EventSourceRecord, InstanceRecord,
};
use roost_wire::Codec;
use roost_wire::frame::{Ack, RequestFrame, TwoPart};
use roost_wire::message::{
    Annotated, ControlMessage, EngineOutput, EngineRequest, Envelope, HandshakeMessage, Prologue,
};

/// Largest frame that is believed in.
const MAX: usize = 1 << 20;

/// Frames of both planes, and the JSON of their control parts.
pub(crate) fn frame(data: &[u8]) {
    let mut bytes = BytesMut::from(data);
    while let Ok(Some(frame)) = RequestFrame::decode(&mut bytes, MAX) {
        let _ = frame.headers();
        if let Ok((control, body)) = frame.parts()
            && let Ok(control) = Codec::Json.decode::<ControlMessage>(&control)
        {
            let _ = control.connection_info.tcp();
            let _ = EngineRequest::decode(control.codec(), &body);
        }
    }
    if let Ok(Some((ack, len))) = Ack::decode(data) {
        assert!(len <= data.len());
        let mut again = Vec::new();
        ack.encode(&mut again);
        let decoded = Ack::decode(&again).expect("our own").expect("whole");
        assert_eq!(decoded, (ack, again.len()));
    }
    if let Ok(Some((frame, len))) = TwoPart::decode(data, MAX) {
        assert_eq!(24 + frame.header.len() + frame.body.len(), len);
        let _ = Codec::Json.decode::<HandshakeMessage>(frame.header);
        let _ = Codec::Json.decode::<Prologue>(frame.header);
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(TwoPart::decode(&again, MAX).expect("our own").expect("whole").0, frame);
    }
}

/// Envelopes of answers with their items, and request bodies.
pub(crate) fn envelope(data: &[u8]) {
    for codec in [Codec::Json, Codec::Msgpack] {
        if let Ok(Envelope { data: Some(item), .. }) = Envelope::decode(codec, data) {
            let _ = codec.decode::<Annotated<EngineOutput>>(item);
        }
        if let Ok(item) = codec.decode::<Annotated<EngineOutput>>(data) {
            let again = codec.encode(&item).expect("what was decoded can be encoded");
            let _ = codec.decode::<Annotated<EngineOutput>>(&again).expect("our own");
        }
        let _ = EngineRequest::decode(codec, data);
    }
}

/// Records of the discovery store.
pub(crate) fn card(data: &[u8]) {
    let _ = CardRecord::decode(data);
    let _ = InstanceRecord::decode(data);
    let _ = EventChannelRecord::decode(data);
    let _ = EventSourceRecord::decode(data);
}

/// Messages of the event plane and of recovery.
pub(crate) fn event(data: &[u8]) {
    if let Ok(envelope) = EventEnvelope::decode(&Bytes::copy_from_slice(data)) {
        payload(&envelope.payload);
    }
    payload(data);
}

fn payload(data: &[u8]) {
    let _ = decode_kv_events(data);
    let _ = Load::decode(data);
    let _ = BindingEvent::decode(data);
    let _ = SequenceEvent::decode(data);
    for codec in [RecordCodec::Json, RecordCodec::Msgpack] {
        let _ = KvQuery::decode(data, codec);
        let _ = KvAnswer::decode(data, codec);
    }
}
