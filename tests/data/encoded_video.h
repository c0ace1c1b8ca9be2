// Videos made on the spot through FFmpeg's encoders.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>

namespace topomask::testing {

struct VideoOptions {
  int width = 64, height = 48, frames = 24;
  int keyframe_every = 8, b_frames = 2;
  const char* format = "mp4";  // the container, which is also the end of the file's name
};

inline int expect_success(int status) {
  if (status < 0) throw std::runtime_error("FFmpeg cannot make the video of this test");
  return status;
}

// A video whose frame t is grey of the level level(t), with a bright block that moves to the right.
inline void write_video(
    const std::string& path, const VideoOptions& options,
    const std::function<int(int)>& level = [](int t) { return 40 + 5 * t; }) {
  AVFormatContext* format = nullptr;
  expect_success(avformat_alloc_output_context2(&format, nullptr, options.format, path.c_str()));
  const AVCodec* codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
  if (codec == nullptr) throw std::runtime_error("FFmpeg lacks the encoder of this test");
  AVStream* stream = avformat_new_stream(format, nullptr);
  AVCodecContext* encoder = avcodec_alloc_context3(codec);
  encoder->width = options.width;
  encoder->height = options.height;
  encoder->pix_fmt = AV_PIX_FMT_YUV420P;
  encoder->time_base = {1, 25};
  encoder->framerate = {25, 1};
  encoder->gop_size = options.keyframe_every;
  encoder->max_b_frames = options.b_frames;
  encoder->bit_rate = 4000000;
  if ((format->oformat->flags & AVFMT_GLOBALHEADER) != 0) encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  expect_success(avcodec_open2(encoder, codec, nullptr));
  expect_success(avcodec_parameters_from_context(stream->codecpar, encoder));
  stream->time_base = encoder->time_base;
  expect_success(avio_open(&format->pb, path.c_str(), AVIO_FLAG_WRITE));
  expect_success(avformat_write_header(format, nullptr));
  AVFrame* frame = av_frame_alloc();
  frame->format = encoder->pix_fmt;
  frame->width = options.width;
  frame->height = options.height;
  expect_success(av_frame_get_buffer(frame, 0));
  AVPacket* packet = av_packet_alloc();
  const auto encode = [&](const AVFrame* given) {
    expect_success(avcodec_send_frame(encoder, given));
    while (avcodec_receive_packet(encoder, packet) >= 0) {
      packet->duration = 1;  // or the last frame of an MP4 would have none and be cut off
      av_packet_rescale_ts(packet, encoder->time_base, stream->time_base);
      packet->stream_index = stream->index;
      expect_success(av_interleaved_write_frame(format, packet));
    }
  };
  for (int t = 0; t < options.frames; ++t) {
    expect_success(av_frame_make_writable(frame));
    for (int y = 0; y < options.height; ++y) {
      for (int x = 0; x < options.width; ++x) {
        const bool block = y < 8 && x >= 2 * t && x < 2 * t + 8;
        frame->data[0][y * frame->linesize[0] + x] = static_cast<std::uint8_t>(block ? 235 : level(t));
      }
    }
    for (int plane = 1; plane < 3; ++plane) {
      for (int y = 0; y < options.height / 2; ++y) {
        for (int x = 0; x < options.width / 2; ++x)
          frame->data[plane][y * frame->linesize[plane] + x] = 128;  // no colour
      }
    }
    frame->pts = t;
    encode(frame);
  }
  encode(nullptr);
  expect_success(av_write_trailer(format));
  avio_closep(&format->pb);
  av_packet_free(&packet);
  av_frame_free(&frame);
  avcodec_free_context(&encoder);
  avformat_free_context(format);
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace topomask::testing
