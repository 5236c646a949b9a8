// ONNX models from text, as files in a folder of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "frontend/import.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"

namespace mcc::frontend {

class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mcc_import_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }
  std::string write(const onnx::ModelProto& model, const std::string& name = "model.onnx") const {
    return write(name, model.SerializeAsString());
  }

 private:
  std::filesystem::path path_;
};

inline onnx::ModelProto parse_model(const std::string& source) {
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(model, source.c_str());
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  return model;
}

inline Result<ImportedModel> import_text(const std::string& source, const ImportOptions& options = {}) {
  ModelFolder folder;
  return import_onnx(folder.write(parse_model(source)), options, graph::interpreter_evaluator());
}

// "where: message | hint" of every error, sorted.
inline std::vector<std::string> error_lines(const Result<ImportedModel>& result) {
  std::vector<std::string> lines;
  if (result.ok()) return lines;
  for (const Diagnostic& error : result.errors()) {
    std::string line = error.where.empty() ? error.message : error.where + ": " + error.message;
    if (!error.hint.empty()) line += " | " + error.hint;
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace mcc::frontend
