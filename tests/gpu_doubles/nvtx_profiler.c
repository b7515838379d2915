/* A profiler that prints the ranges of the thread that pushes them: what NVTX loads by NVTX_INJECTION64_PATH. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

static int depth;

static int push(const char *name)
{
    printf("%*s> %s\n", 2 * depth, "", name);
    return depth++;
}

static int pop(void)
{
    depth--;
    printf("%*s<\n", 2 * depth, "");
    return depth;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find_table)
{
    const NvtxExportTableCallbacks *callbacks = (const NvtxExportTableCallbacks *)find_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable core = NULL;
    unsigned count = 0;
    if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &count)
        || count <= NVTX_CBID_CORE_RangePop) {
        return 0;
    }
    *core[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *core[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
