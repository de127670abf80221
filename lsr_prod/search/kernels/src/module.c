/* The extension. */
#include "kernels.h"
#include "module.h"

#ifndef SOURCES
#define SOURCES "" /* digest of the sources; the build sets it */
#endif

static PyMethodDef methods[] = {
    {"Shard", py_shard, METH_VARARGS, NULL},
    {"match", py_match, METH_VARARGS, NULL},
    {"impacts", py_impacts, METH_VARARGS, NULL},
    {"score", py_score, METH_VARARGS, NULL},
    {"workspace_bytes", py_workspace_bytes, METH_NOARGS, NULL},
    {"choose_instructions", py_choose_instructions, METH_VARARGS, NULL},
    {"Version", py_version, METH_VARARGS, NULL},
    {"read_vector", py_read_vector, METH_VARARGS, NULL},
    {"search", py_search, METH_VARARGS, NULL},
    {"search_batch", py_search_batch, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_constants(PyObject *module) {
    choose_instructions(NULL);
    return PyModule_AddStringConstant(module, "SOURCES", SOURCES);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_constants}, {0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_native(void) {
    return PyModuleDef_Init(&module);
}
