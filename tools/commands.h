// The commands of mcc, one file each. add_X declares the command's options and what happens when it is called: it sets
// *exit_code.
#pragma once

namespace CLI {
class App;
}

namespace mcc::tools {

void add_compile(CLI::App& app, int* exit_code);
void add_run(CLI::App& app, int* exit_code);
void add_bench(CLI::App& app, int* exit_code);
void add_verify(CLI::App& app, int* exit_code);
void add_inspect(CLI::App& app, int* exit_code);
void add_tasks(CLI::App& app, int* exit_code);
void add_tune(CLI::App& app, int* exit_code);
void add_explain(CLI::App& app, int* exit_code);
void add_log(CLI::App& app, int* exit_code);
void add_doctor(CLI::App& app, int* exit_code);
void add_measure_worker(CLI::App& app, int* exit_code);
void add_assemble_worker(CLI::App& app, int* exit_code);

}  // namespace mcc::tools
