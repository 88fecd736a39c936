use std::convert::Infallible;

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use super::{
    AgentContext, BootstrapInfo, OutputOptions, PromptTokens, PromptTokensDetails, RouterConfigOverride,
    Routing, SamplingOptions, StopConditions,
};
use crate::{Codec, CodecError, msgpack};

/// A tokenized request as a worker receives it (the peer's `PreprocessedRequest`).
///
/// Unknown keys are ignored on receipt. Keys are written in the peer's order, so that a decoded request of the
/// peer encodes to the same bytes. Multimodal fields are carried as they are.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EngineRequest {
    /// Served name of the model.
    pub model: String,
    /// The prompt.
    pub token_ids: PromptTokens,
    /// Base64 of precomputed embeddings that replace the tokens.
    pub prompt_embeds: Option<String>,
    /// Media parts by type.
    pub multi_modal_data: Option<Value>,
    /// Identities of the media parts.
    pub multi_modal_uuids: Option<Value>,
    /// Token sequence to route by when media expand.
    pub mm_routing_info: Option<Value>,
    /// When to stop.
    pub stop_conditions: StopConditions,
    /// How to sample.
    pub sampling_options: SamplingOptions,
    /// What to return.
    pub output_options: OutputOptions,
    /// End-of-sequence tokens of the model; empty when they are to be ignored.
    pub eos_token_ids: Vec<u32>,
    /// Checksum of the model card that the frontend used.
    pub mdc_sum: Option<String>,
    /// Annotations that the client asked for.
    pub annotations: Vec<String>,
    /// Where the request goes.
    pub routing: Option<Routing>,
    /// Router settings for this request.
    pub router_config_override: Option<RouterConfigOverride>,
    /// What a prefill worker without a bootstrap server returned.
    pub prefill_result: Option<PrefillResult>,
    /// What an encode worker returned.
    pub encoder_result: Option<Value>,
    /// Span of the worker that handled the request before.
    pub migration_link: Option<TraceLink>,
    /// Where prefill and decode engines meet.
    pub bootstrap_info: Option<BootstrapInfo>,
    /// Further arguments, among them `nvext`.
    pub extra_args: Option<Value>,
    /// Hints about cached blocks.
    pub kv_hint: Option<Value>,
    /// Let the model reason before a guided answer begins; sent only as `true`.
    pub require_reasoning: bool,
    /// Latency targets.
    pub router: Option<RouterTargets>,
    /// Session of the request.
    pub agent_context: Option<AgentContext>,
    /// Name under which media may be cached: the session, when there is one.
    pub image_cache_scope: Option<String>,
    /// Arguments of the media processor.
    pub mm_processor_kwargs: Option<Value>,
    /// Arguments of the media loader.
    pub media_io_kwargs: Option<Value>,
    /// Time of the request in milliseconds, as the client gave it.
    pub request_timestamp_ms: Option<f64>,
    /// Whether this is a probe of the worker by itself; sent only as `true`.
    #[serde(rename = "_HEALTH_CHECK")]
    pub is_probe: bool,
}

/// How the tokens of a prompt are written in MessagePack; JSON has only the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenIdFormat {
    /// An array of integers.
    #[default]
    Array,
    /// One byte string of little-endian 32-bit integers.
    Bytes,
}

impl EngineRequest {
    /// Encodes the request.
    ///
    /// As an array the tokens are packed first, unless they are already: that takes a fifth of a millisecond for
    /// 100,000 of them and is done once for all clones of a request.
    ///
    /// # Errors
    /// A value has no representation in the codec.
    pub fn encode(&self, codec: Codec, format: TokenIdFormat) -> Result<Bytes, CodecError> {
        if codec == Codec::Json {
            return codec.encode(self);
        }
        let Ok(fields) = self.write_fields(FieldCount(0));
        let tokens_len = match format {
            TokenIdFormat::Array => self.token_ids.pack().byte_len(),
            TokenIdFormat::Bytes => self.token_ids.len() * 4,
        };
        let mut out = Vec::with_capacity(1024 + tokens_len);
        msgpack::put_map_len(&mut out, fields.0);
        Ok(self.write_fields(MsgpackFields { out, format })?.out.into())
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// The bytes are not a request in this codec.
    pub fn decode(codec: Codec, bytes: &[u8]) -> Result<Self, CodecError> {
        codec.decode(bytes)
    }

    /// Whether the client asked for an annotation.
    #[must_use]
    pub fn has_annotation(&self, name: &str) -> bool {
        self.annotations.iter().any(|annotation| annotation == name)
    }

    /// Names every present field to `fields`, in the peer's order.
    fn write_fields<F: Fields>(&self, mut fields: F) -> Result<F, F::Error> {
        fields.value("model", &self.model)?;
        fields.token_ids("token_ids", &self.token_ids)?;
        fields.option("prompt_embeds", &self.prompt_embeds)?;
        fields.option("multi_modal_data", &self.multi_modal_data)?;
        fields.option("multi_modal_uuids", &self.multi_modal_uuids)?;
        fields.option("mm_routing_info", &self.mm_routing_info)?;
        fields.value("stop_conditions", &self.stop_conditions)?;
        fields.value("sampling_options", &self.sampling_options)?;
        fields.value("output_options", &self.output_options)?;
        fields.value("eos_token_ids", &self.eos_token_ids)?;
        fields.value("mdc_sum", &self.mdc_sum)?;
        fields.value("annotations", &self.annotations)?;
        fields.option("routing", &self.routing)?;
        fields.value("router_config_override", &self.router_config_override)?;
        fields.option("prefill_result", &self.prefill_result)?;
        fields.option("encoder_result", &self.encoder_result)?;
        fields.option("migration_link", &self.migration_link)?;
        fields.option("bootstrap_info", &self.bootstrap_info)?;
        fields.option("extra_args", &self.extra_args)?;
        fields.option("kv_hint", &self.kv_hint)?;
        fields.flag("require_reasoning", self.require_reasoning)?;
        fields.option("router", &self.router)?;
        fields.option("agent_context", &self.agent_context)?;
        fields.option("image_cache_scope", &self.image_cache_scope)?;
        fields.option("mm_processor_kwargs", &self.mm_processor_kwargs)?;
        fields.option("media_io_kwargs", &self.media_io_kwargs)?;
        fields.option("request_timestamp_ms", &self.request_timestamp_ms)?;
        fields.flag("_HEALTH_CHECK", self.is_probe)?;
        Ok(fields)
    }
}

impl Serialize for EngineRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ok(fields) = self.write_fields(FieldCount(0));
        let map = serializer.serialize_map(Some(fields.0 as usize))?;
        self.write_fields(SerdeFields(map))?.0.end()
    }
}

/// What a prefill worker returned in its stream, for the decode worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PrefillResult {
    /// Parameters that only the engines understand.
    pub disaggregated_params: Value,
    /// Breakdown of the prompt tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
}

/// A span to link to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLink {
    /// Trace in 32 hexadecimal digits.
    pub trace_id: String,
    /// Span in 16 hexadecimal digits.
    pub span_id: String,
}

/// Latency targets of a request in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterTargets {
    /// Time to the first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_target: Option<f64>,
    /// Time between tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl_target: Option<f64>,
}

/// Receives the fields of a request one by one.
trait Fields {
    type Error;

    fn value<T: Serialize>(&mut self, key: &'static str, value: &T) -> Result<(), Self::Error>;

    fn token_ids(&mut self, key: &'static str, ids: &PromptTokens) -> Result<(), Self::Error>;

    fn option<T: Serialize>(&mut self, key: &'static str, value: &Option<T>) -> Result<(), Self::Error> {
        match value {
            Some(value) => self.value(key, value),
            None => Ok(()),
        }
    }

    fn flag(&mut self, key: &'static str, value: bool) -> Result<(), Self::Error> {
        if value { self.value(key, &true) } else { Ok(()) }
    }
}

/// Counts the fields, for the header of the map.
struct FieldCount(u32);

impl Fields for FieldCount {
    type Error = Infallible;

    fn value<T: Serialize>(&mut self, _key: &'static str, _value: &T) -> Result<(), Infallible> {
        self.0 += 1;
        Ok(())
    }

    fn token_ids(&mut self, _key: &'static str, _ids: &PromptTokens) -> Result<(), Infallible> {
        self.0 += 1;
        Ok(())
    }
}

/// Writes MessagePack, the tokens without a serde call each.
struct MsgpackFields {
    out: Vec<u8>,
    format: TokenIdFormat,
}

impl Fields for MsgpackFields {
    type Error = CodecError;

    fn value<T: Serialize>(&mut self, key: &'static str, value: &T) -> Result<(), CodecError> {
        msgpack::put_key(&mut self.out, key);
        Codec::Msgpack.encode_into(value, &mut self.out)
    }

    fn token_ids(&mut self, key: &'static str, ids: &PromptTokens) -> Result<(), CodecError> {
        msgpack::put_key(&mut self.out, key);
        match self.format {
            TokenIdFormat::Array => {
                msgpack::put_array_len(&mut self.out, ids.len());
                ids.pack().pieces().for_each(|piece| self.out.extend_from_slice(piece));
            }
            TokenIdFormat::Bytes => msgpack::put_u32_bytes(&mut self.out, ids),
        }
        Ok(())
    }
}

/// Hands the fields to any serde format.
struct SerdeFields<M>(M);

impl<M: SerializeMap> Fields for SerdeFields<M> {
    type Error = M::Error;

    fn value<T: Serialize>(&mut self, key: &'static str, value: &T) -> Result<(), M::Error> {
        self.0.serialize_entry(key, value)
    }

    fn token_ids(&mut self, key: &'static str, ids: &PromptTokens) -> Result<(), M::Error> {
        self.0.serialize_entry(key, ids)
    }
}
