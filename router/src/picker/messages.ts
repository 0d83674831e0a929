import { type PackageDefinition, fromJSON } from '@grpc/proto-loader';
import protobuf from 'protobufjs';

/**
 * What the picker reads and writes of Envoy's external processing service, by the published field numbers (envoyproxy/data-plane-api,
 * envoy/service/ext_proc/v3 and envoy/config/core/v3; Envoy 1.40). Unknown fields are skipped.
 */
const EXT_PROC = `
syntax = "proto3";
package envoy.service.ext_proc.v3;
message HeaderValue { string key = 1; string value = 2; bytes raw_value = 3; }
message HeaderValueOption { HeaderValue header = 1; int32 append_action = 3; }
message HeaderMap { repeated HeaderValue headers = 1; }
message HeaderMutation { repeated HeaderValueOption set_headers = 1; repeated string remove_headers = 2; }
message StreamedBodyResponse { bytes body = 1; bool end_of_stream = 2; }
message BodyMutation { oneof mutation { bytes body = 1; bool clear_body = 2; StreamedBodyResponse streamed_response = 3; } }
message CommonResponse { int32 status = 1; HeaderMutation header_mutation = 2; BodyMutation body_mutation = 3; bool clear_route_cache = 5; }
message HttpHeaders { HeaderMap headers = 1; bool end_of_stream = 3; }
message HttpBody { bytes body = 1; bool end_of_stream = 2; }
message HttpTrailers { HeaderMap trailers = 1; }
message HeadersResponse { CommonResponse response = 1; }
message BodyResponse { CommonResponse response = 1; }
message TrailersResponse { HeaderMutation header_mutation = 1; }
message HttpStatus { int32 code = 1; }
message ImmediateResponse { HttpStatus status = 1; HeaderMutation headers = 2; bytes body = 3; string details = 5; }
message Metadata { map<string, google.protobuf.Struct> filter_metadata = 1; }
message ProcessingMode { int32 request_header_mode = 1; int32 response_header_mode = 2; int32 request_body_mode = 3; int32 response_body_mode = 4;
  int32 request_trailer_mode = 5; int32 response_trailer_mode = 6; }
message ProtocolConfiguration { int32 request_body_mode = 1; int32 response_body_mode = 2; }
message ProcessingRequest {
  oneof request {
    HttpHeaders request_headers = 2; HttpHeaders response_headers = 3; HttpBody request_body = 4; HttpBody response_body = 5;
    HttpTrailers request_trailers = 6; HttpTrailers response_trailers = 7;
  }
  Metadata metadata_context = 8;
  map<string, google.protobuf.Struct> attributes = 9;
  ProtocolConfiguration protocol_config = 11;
}
message ProcessingResponse {
  oneof response {
    HeadersResponse request_headers = 1; HeadersResponse response_headers = 2; BodyResponse request_body = 3; BodyResponse response_body = 4;
    TrailersResponse request_trailers = 5; TrailersResponse response_trailers = 6; ImmediateResponse immediate_response = 7;
  }
  google.protobuf.Struct dynamic_metadata = 8;
  ProcessingMode mode_override = 9;
}
service ExternalProcessor { rpc Process(stream ProcessingRequest) returns (stream ProcessingResponse); }
`;

const STRUCT = `
syntax = "proto3";
package google.protobuf;
message Struct { map<string, Value> fields = 1; }
message ListValue { repeated Value values = 1; }
message Value { oneof kind { int32 null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
  Struct struct_value = 5; ListValue list_value = 6; } }
`;

/** gRPC's health checking protocol, version 1. */
const HEALTH = `
syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse { int32 status = 1; }
service Health { rpc Check(HealthCheckRequest) returns (HealthCheckResponse); rpc Watch(HealthCheckRequest) returns (stream HealthCheckResponse); }
`;

export const EXTERNAL_PROCESSOR = 'envoy.service.ext_proc.v3.ExternalProcessor';
export const HEALTH_SERVICE = 'grpc.health.v1.Health';

/** The services `EXTERNAL_PROCESSOR` and `HEALTH_SERVICE`. */
export function services(): PackageDefinition {
  const root = new protobuf.Root();
  for (const text of [STRUCT, EXT_PROC, HEALTH]) protobuf.parse(text, root);
  return fromJSON(root.toJSON(), { arrays: true, objects: true });
}

/** Of `ProtocolConfiguration`: how the gateway sends bodies. */
export const BODY_MODE = { none: 0, streamed: 1, buffered: 2, bufferedPartial: 3, fullDuplex: 4 } as const;

export interface HeaderValue {
  readonly key: string;
  readonly value?: string;
  /** Envoy sends this one. */
  readonly rawValue?: Uint8Array;
}

export interface HttpHeaders {
  readonly headers?: { readonly headers: readonly HeaderValue[] };
  readonly endOfStream?: boolean;
}

export interface HttpBody {
  readonly body?: Buffer;
  readonly endOfStream?: boolean;
}

export interface Value {
  readonly stringValue?: string;
  readonly structValue?: Struct;
  readonly listValue?: { readonly values: readonly Value[] };
}

export interface Struct {
  readonly fields: Readonly<Record<string, Value>>;
}

/** One of the members up to `responseTrailers` is set. */
export interface ProcessingRequest {
  readonly requestHeaders?: HttpHeaders;
  readonly requestBody?: HttpBody;
  readonly requestTrailers?: object;
  readonly responseHeaders?: HttpHeaders;
  readonly responseBody?: HttpBody;
  readonly responseTrailers?: object;
  readonly metadataContext?: { readonly filterMetadata: Readonly<Record<string, Struct>> };
  /** By the filter that adds them: those that `response_attributes` of the ext_proc filter names. */
  readonly attributes?: Readonly<Record<string, Struct>>;
  /** With the first message. */
  readonly protocolConfig?: { readonly requestBodyMode?: number; readonly responseBodyMode?: number };
}

interface HeaderMutation {
  readonly setHeaders: readonly { readonly header: HeaderValue; readonly appendAction?: number }[];
  readonly removeHeaders?: readonly string[];
}

export interface CommonResponse {
  readonly headerMutation?: HeaderMutation;
  readonly bodyMutation?: { readonly body?: Uint8Array; readonly streamedResponse?: HttpBody };
  readonly clearRouteCache?: boolean;
}

/** One of the members up to `immediateResponse` is set. */
export interface ProcessingResponse {
  readonly requestHeaders?: { readonly response: CommonResponse };
  readonly requestBody?: { readonly response: CommonResponse };
  readonly requestTrailers?: object;
  readonly responseHeaders?: { readonly response: CommonResponse };
  readonly responseBody?: { readonly response: CommonResponse };
  readonly responseTrailers?: object;
  readonly immediateResponse?: {
    readonly status: { readonly code: number };
    readonly headers: HeaderMutation;
    readonly body: Uint8Array;
  };
  readonly dynamicMetadata?: Struct;
  /** With the answer to `requestHeaders`. Gateways without `allow_mode_override` ignore it. */
  readonly modeOverride?: ProcessingMode;
}

interface ProcessingMode {
  readonly requestHeaderMode: number;
  readonly responseHeaderMode: number;
  readonly requestBodyMode: number;
  readonly responseBodyMode: number;
  readonly requestTrailerMode: number;
  readonly responseTrailerMode: number;
}

/** Of the modes of headers and trailers. */
const [SEND, SKIP] = [1, 2];

/** The same mode, with other response bodies. */
export const withResponseBodies = (requestBodyMode: number, responseBodyMode: number): ProcessingMode => ({
  requestHeaderMode: SEND,
  responseHeaderMode: SEND,
  requestBodyMode,
  responseBodyMode,
  // Envoy demands them with this mode, and only with it.
  requestTrailerMode: requestBodyMode === BODY_MODE.fullDuplex ? SEND : SKIP,
  // Else the end of a response with trailers is not seen.
  responseTrailerMode: SEND,
});

const OVERWRITE_OR_ADD = 2;

/** Sets headers, in place of those of the same names, and removes others. */
export const settingHeaders = (
  headers: readonly (readonly [name: string, value: string])[],
  removed: readonly string[] = [],
): HeaderMutation => ({
  setHeaders: headers.map(([key, value]) => ({
    header: { key, rawValue: Buffer.from(value, 'latin1') },
    appendAction: OVERWRITE_OR_ADD,
  })),
  // The order in which gateways apply the two differs.
  removeHeaders: removed.filter((name) => !headers.some(([set]) => set === name)),
});

/** A header's value, each byte as a character. */
export const headerText = ({ value = '', rawValue }: HeaderValue): string =>
  Buffer.from(rawValue === undefined || rawValue.length === 0 ? value : rawValue).toString('latin1');
